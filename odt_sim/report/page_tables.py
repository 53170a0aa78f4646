"""The page's tables as HTML: the comparison by question, the pairs, and every device."""

from collections.abc import Sequence
from html import escape
from typing import Any

from odt_sim.metrics.fleet import HIGHER_IS_BETTER
from odt_sim.report.columns import Column
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.formatting import (
    PERCENT,
    UNKNOWN,
    cell,
    metric_name,
    probability,
    score,
    signed,
    signed_range,
    significant,
)
from odt_sim.report.pairing import Paired
from odt_sim.report.style import strokes


def comparison_html(comparison: Comparison, question: str) -> str:
    """Returns the columns of one question, with the best value of each marked; empty where no row has a figure of it."""
    shown = [column for column in comparison.columns if column.question == question]
    if not shown:
        return ""
    names = names_html(comparison)
    head = "".join(f"<th>{escape(column.title)}{_unit(column)}</th>" for column in shown)
    body = "".join(
        f"<tr><th>{names[row.label]}</th>{''.join(_cell(comparison, row, column) for column in shown)}</tr>\n"
        for row in comparison.rows
    )
    return _table(f"<th>strategy</th>{head}", body)


def paired_html(comparison: Comparison) -> str:
    """Returns what each configuration gains over its reference; empty where nothing could be compared."""
    known = [row for row in comparison.paired if row.pairs]
    if not known:
        return ""
    names, metric = names_html(comparison), comparison.metric
    several = len({row.reference for row in known}) > 1
    heads = (
        *(("strategy", "against") if several else ("strategy",)),
        *("difference", "95\N{NO-BREAK SPACE}% interval", "p", "p, Holm", "better", "equal", "worse", "pairs", "seeds"),
    )
    body = "".join(
        f"<tr><th>{names[row.label]}</th>{f'<td>{escape(str(row.reference))}</td>' if several else ''}"
        f"{''.join(f'<td>{text}</td>' for text in _paired_cells(row, metric))}</tr>\n"
        for row in known
    )
    return _table("".join(f"<th>{head}</th>" for head in heads), body)


def devices_html(row: Configuration, comparison: Comparison) -> str:
    """Returns every device of a configuration, over all its seeds, with all that is known of it."""
    several = len(row.runs) > 1
    devices = [
        {"device": device["device"], "seed": run.summary["seed"], **device}
        for run in row.runs
        if run.summary
        for device in run.devices
    ]
    known = dict.fromkeys(key for device in devices for key in device if device[key] is not None)
    columns = [key for key in known if several or key != "seed"]
    head = "".join(f"<th>{escape(_heading(column))}</th>" for column in columns)
    body = "".join(_device(device, columns) for device in devices)
    return _table(head, body)


def _table(head: str, body: str) -> str:
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'


def names_html(comparison: Comparison) -> dict[str, str]:
    """Returns each configuration's name with its colour, its overrides, and out of how many it was chosen."""
    styles = strokes(comparison.rows)
    return {row.label: _name(row, styles[row.label].color) for row in comparison.rows}


def _name(row: Configuration, color: str) -> str:
    first, *notes = row.label.split(" ")
    if row.chosen:
        notes.append(f"chosen of {row.choice.candidates}")
    details = f"<small>{'<br>'.join(map(escape, notes))}</small>" if notes else ""
    return f'<span class="swatch" style="background:{color}"></span>{escape(first)}{details}'


def _unit(column: Column) -> str:
    return ", %" if column.unit == "percent" else ""


def _cell(comparison: Comparison, row: Configuration, column: Column) -> str:
    spread = row.values[column.key]
    value, deviation = cell(spread, column.unit)
    best = ' class="best"' if spread is not None and spread.mean == comparison.best(column) else ""
    return f"<td{best}>{value}{f'<small>{deviation}</small>' if deviation else ''}</td>"


def _paired_cells(row: Paired, metric: str) -> Sequence[str]:
    numbers = (
        signed(row.difference, metric),
        signed_range(row.interval, metric),
        probability(row.p),
        probability(row.p_holm),
    )
    counts = (row.better, row.pairs - row.better - row.worse, row.worse, row.pairs, row.seeds)
    return [*map(escape, numbers), *map(str, counts)]


def _heading(column: str) -> str:
    """Returns a column of `devices.jsonl` as a heading: `local_accuracy` becomes `local accuracy, %`."""
    metric = _metric(column)
    if metric is None:
        return {"train_examples": "train examples", "examples": "test examples"}.get(column, column.replace("_", " "))
    model = column.removesuffix(metric).rstrip("_")
    return f"{model} {metric_name(metric)}".strip() + (", %" if metric in PERCENT else "")


def _metric(column: str) -> str | None:
    """Returns the metric that a column holds: `balanced_accuracy` of `local_balanced_accuracy`; None where it is none."""
    found = [metric for metric in HIGHER_IS_BETTER if column == metric or column.endswith(f"_{metric}")]
    return max(found, key=len, default=None)


def _device(device: dict[str, Any], columns: Sequence[str]) -> str:
    first, *others = (_text(device.get(column), column) for column in columns)
    return f"<tr><th>{first}</th>{''.join(f'<td>{text}</td>' for text in others)}</tr>\n"


def _text(value: Any, column: str) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if metric := _metric(column):
        return score(value, metric)
    return significant(value) if isinstance(value, float) else escape(str(value))
