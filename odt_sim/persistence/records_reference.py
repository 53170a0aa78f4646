"""The reference page of the records in Markdown, made from their types: `python -m odt_sim.persistence.records_reference`."""

from collections.abc import Mapping
from typing import Any, get_type_hints

from odt_sim.persistence.records import DEVICE_FIGURES, ROUND_FIGURES, DeviceRecord, Record, RoundRecord, columns_of
from odt_sim.persistence.summary import Summary
from odt_sim.persistence.timeline import TimelineRecord

INTRODUCTION = """# Records

A run's folder holds `rounds.jsonl` (a JSON object per round), `devices.jsonl` (a JSON object per device, written at the
end) and `summary.json`. A run that ended early has `failure.json` with `error` and `overrides` instead of a summary. A
number that is not finite is written as null.

`m` stands for each metric of the run's model, such as `accuracy`, `loss`, `balanced_accuracy`, `auc` of a classifier; the
page on evaluation lists those of each task. "Distribution" stands for `devices`, `weighted_mean`, `mean`, `std`,
`bottom_decile`, `top_decile` and `worst`, by metric.

A run on the clock (`fleet.profiles`) also has `timeline.jsonl`, a JSON object per round with what each selected device did.

Columns in *italics* may be absent, above all from files of older versions.
"""


def reference() -> str:
    """Return the page."""
    tables = (
        _table("rounds.jsonl", RoundRecord, ROUND_FIGURES),
        _table("timeline.jsonl", TimelineRecord, {}),
        _table("devices.jsonl", DeviceRecord, DEVICE_FIGURES),
        _table("summary.json", Summary, {}),
    )
    return "\n".join([INTRODUCTION, *tables])


def _table(file: str, record: type[Record], figures: Mapping[str, str]) -> str:
    hints = get_type_hints(record, include_extras=True)
    rows = [_row(name, hints[name], required) for name, required in columns_of(record).items()]
    rows += [f"| `{name}` | float | {text} |" for name, text in figures.items()]
    return "\n".join([f"## `{file}`\n", "| column | type | meaning |", "|---|---|---|", *rows, ""])


def _row(name: str, hint: Any, required: bool) -> str:
    kind, (text,) = hint.__origin__, hint.__metadata__
    column = f"`{name}`" if required else f"*`{name}`*"
    return f"| {column} | {_type_name(kind)} | {text} |"


def _type_name(kind: Any) -> str:
    """Return the JSON type of a field."""
    options = [option for option in getattr(kind, "__args__", ()) if option is not type(None)]
    nullable = type(None) in getattr(kind, "__args__", ())
    if nullable:
        return " or ".join([*map(_type_name, options), "null"])
    name = getattr(kind, "__name__", str(kind))
    return {"Mapping": "object", "Sequence": "list", "str": "text", "bool": "true or false"}.get(name, name)


if __name__ == "__main__":
    print(reference(), end="")
