"""The page's tables as HTML: the comparison, and every device."""

from collections.abc import Sequence
from html import escape
from typing import Any

from odt_sim.metrics.fleet import HIGHER_IS_BETTER
from odt_sim.report.comparison import COLUMNS, Column, Comparison, Configuration
from odt_sim.report.formatting import PERCENT, UNKNOWN, cell, metric_name, score, significant
from odt_sim.report.style import strokes


def comparison_html(comparison: Comparison) -> str:
    """Returns the comparison, with the best value of each column marked."""
    styles = strokes(comparison.rows)
    head = "".join(f"<th>{escape(column.title)}{_unit(column, comparison)}</th>" for column in COLUMNS)
    body = "".join(
        f"<tr><th>{_name(row, styles[row.label].color)}</th>"
        + "".join(_cell(comparison, row, column) for column in COLUMNS)
        + "</tr>\n"
        for row in comparison.rows
    )
    return _table(f"<th>strategy</th>{head}", body)


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


def _name(row: Configuration, color: str) -> str:
    first, *overrides = row.label.split(" ")
    details = f"<small>{'<br>'.join(map(escape, overrides))}</small>" if overrides else ""
    return f'<span class="swatch" style="background:{color}"></span>{escape(first)}{details}'


def _unit(column: Column, comparison: Comparison) -> str:
    percent = column.kind == "fraction" or (column.kind == "score" and comparison.metric == "accuracy")
    return ", %" if percent else ""


def _cell(comparison: Comparison, row: Configuration, column: Column) -> str:
    spread = row.values[column.key]
    value, deviation = cell(spread, column, comparison.metric)
    best = ' class="best"' if spread is not None and spread.mean == comparison.best(column) else ""
    return f"<td{best}>{value}{f'<small>{deviation}</small>' if deviation else ''}</td>"


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
