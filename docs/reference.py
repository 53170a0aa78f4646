"""The reference pages that are made from declarations: `python docs/reference.py settings|records|device-profiles`."""

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

from odt_sim.cli.hydra.options import OPTIONS, groups, options, shown_value
from odt_sim.cli.hydra.settings import default_options
from odt_sim.declarations import Setting, Settings, declared
from odt_sim.fleet.profile import FORMAT_VERSION, DeviceProfile, Timing
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


def settings() -> str:
    """Return the reference of all settings as Markdown."""
    lines = ["# Settings", "", "Set a key with `odt-sim run key=value`, and choose an option with `group=option`.", ""]
    chosen = default_options()
    for section in groups():
        lines += [f"## {section.name}", "", _escaped(section.summary), "", *_settings(section.settings)]
    for group in OPTIONS:
        lines += [f"## Options of {group}", ""]
        lines += [f"Default: `{group}={chosen[group]}`.", ""] if group in chosen else []
        for each in options(group):
            lines += [f"### `{each.name}`", "", _escaped(each.summary), "", *_settings(each.settings)]
    return "\n".join(lines)


def _settings(settings: Iterable[Setting]) -> list[str]:
    rows = [
        f"| `{each.key}` | {each.kind} | `{shown_value(each.default)}` | {_escaped(each.text)} |" for each in settings
    ]
    return ["| key | type | default | meaning |", "|---|---|---|---|", *rows, ""] if rows else []


def _escaped(text: str) -> str:
    """Return text in which Markdown does not read `_target_` as emphasis, unless it is in backticks already."""
    return re.sub(r"(?<!`)_target_", r"\\_target\\_", text)


def records() -> str:
    """Return the page."""
    tables = (
        _columns("rounds.jsonl", RoundRecord, ROUND_FIGURES),
        _columns("timeline.jsonl", TimelineRecord, {}),
        _columns("devices.jsonl", DeviceRecord, DEVICE_FIGURES),
        _columns("summary.json", Summary, {}),
    )
    return "\n".join([INTRODUCTION, *tables])


def _columns(file: str, record: type[Record], figures: Mapping[str, str]) -> str:
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


def device_profiles() -> str:
    """Return the reference page."""
    return "\n".join(
        [
            "# Device profiles",
            "",
            "`odt-sim phone` writes what a phone measured to `profiles/NAME.json`: one object with `format_version` "
            f"{FORMAT_VERSION} and the keys below. `odt_sim.fleet.profile.DeviceProfile` reads and checks it.",
            "",
            *_keys(DeviceProfile),
            "",
            "## Timings",
            "",
            "`timings` holds an object for each of `train` and `infer`.",
            "",
            *_keys(Timing),
        ]
    )


def _keys(kind: type[Settings]) -> list[str]:
    rows = [
        f"| `{each.key.rpartition('.')[2]}` | {each.kind or 'an object'} | {each.text} |" for each in declared(kind)
    ]
    return ["| key | type | content |", "|---|---|---|", *rows]


PAGES = {"settings": settings, "records": records, "device-profiles": device_profiles}

if __name__ == "__main__":
    print(PAGES[sys.argv[1]]())
