"""The tables of the page, as values for its templates."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odt_sim.metrics.names import is_metric
from odt_sim.metrics.units import readable, significant
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.comparison_columns import Column
from odt_sim.report.equal_budgets import equal_budgets
from odt_sim.report.formatting import (
    UNKNOWN,
    after,
    cell,
    heading,
    metric_unit,
    probability,
    score,
    signed,
    signed_range,
)
from odt_sim.report.pairing import Paired
from odt_sim.report.phone_columns import of_classes
from odt_sim.report.style import strokes

_UNITS = {"percent": ", %", "points": ", points"}

_SPENT = {"kilojoules": "kJ per device", "megabytes": "MB per device", "hours": "busy hours"}
"""The headings of a device's costs, by key."""

SHARES = ("attack_success", "global_attack_success")
"""Columns of devices that are fractions from 0 to 1, but no metrics."""


class Cell(NamedTuple):
    """A value of a table; `deviation` contains the lines below it."""

    text: str
    deviation: str = ""
    best: bool = False


class Name(NamedTuple):
    """The name of a row, its colour in the plots, and small notes below it."""

    text: str
    color: str = ""
    notes: Sequence[str] = ()


class Row(NamedTuple):
    """A row of a table."""

    name: Name
    cells: Sequence[Cell]


class Table(NamedTuple):
    """A table of the page."""

    headings: Sequence[str]
    rows: Sequence[Row]


def comparison_table(comparison: Comparison, question: str) -> Table | None:
    """Return the table of one question, with best values marked; None if no row has a figure."""
    columns = [column for column in comparison.columns if column.question == question]
    if not columns:
        return None
    names = _names(comparison)
    values = [[spread.mean for row in comparison.rows if (spread := row.values[column.key])] for column in columns]
    titles, factors = zip(*readable([column.title for column in columns], values), strict=True)
    headings = (title + _UNITS.get(column.unit, "") for title, column in zip(titles, columns, strict=True))
    rows = [
        Row(names[row.label], [_cell(comparison, row, *each) for each in zip(columns, factors, strict=True)])
        for row in comparison.rows
    ]
    return Table(["strategy", *headings], rows)


def paired_table(comparison: Comparison) -> Table | None:
    """Return the gains of each configuration over its reference; None without pairs."""
    known = [row for row in comparison.paired if row.pairs]
    if not known:
        return None
    names, metric = _names(comparison), comparison.metric
    several = len({row.reference for row in known}) > 1
    figures = (
        "difference",
        "95\N{NO-BREAK SPACE}% CI",
        "p",
        "p (Holm)",
        "better",
        "equal",
        "worse",
        "pairs",
        "seeds",
        "units",
    )
    headings = ["strategy", *(["reference"] if several else []), *figures]
    rows = [
        Row(names[row.label], [*([_label_cell(str(row.reference))] if several else []), *_paired_cells(row, metric)])
        for row in known
    ]
    return Table(headings, rows)


def budgets_table(comparison: Comparison) -> Table | None:
    """Return the metric at equal budgets; None if no budget is known for all configurations."""
    budgets, names, unit = equal_budgets(comparison), _names(comparison), metric_unit(comparison.metric)
    rows = [
        Row(names[label], [Cell(*cell(at.values[label], unit), label in at.best) for at in budgets])
        for label in (row.label for row in comparison.unpruned)
    ]
    headings = ["strategy", *(at.title + _UNITS.get(unit, "") for at in budgets)]
    return Table(headings, rows) if budgets else None


def classes_table(comparison: Comparison) -> Table | None:
    """Return the figures of each device class for each configuration on the clock; None without any."""
    names, metric = _names(comparison), comparison.metric
    found = [(names[row.label], of_classes(row.runs, metric)) for row in comparison.rows]
    values = [[of_class[key] or 0.0 for _, classes in found for of_class in classes.values()] for key in _SPENT]
    spent, factors = zip(*readable([*_SPENT.values()], values), strict=True)
    rows = [
        Row(Name(name.text, name.color, [*name.notes, class_name]), _class_cells(figures, metric, factors))
        for name, classes in found
        for class_name, figures in classes.items()
    ]
    headings = ["strategy", "devices", heading(metric), *spent, "never reported, %"]
    return Table(headings, rows) if rows else None


def _class_cells(figures: Mapping[str, float | None], metric: str, factors: Sequence[float]) -> list[Cell]:
    spent = [factor * (figures[key] or 0.0) for key, factor in zip(_SPENT, factors, strict=True)]
    texts = [f"{figures['devices']:,.0f}", score(figures["score"], metric), *map(significant, spent)]
    return [Cell(text) for text in [*texts, f"{100 * (figures['never_reached'] or 0.0):.1f}"]]


def devices_table(row: Configuration) -> Table:
    """Return all devices of a configuration, over all seeds, with all known figures."""
    several = len(row.runs) > 1
    devices = [
        {"device": record.device, "seed": run.complete.seed, **record} for run in row.runs for record in run.devices
    ]
    known = dict.fromkeys(key for device in devices for key in device if device[key] is not None)
    columns = [key for key in known if key != "device" and (several or key != "seed")]
    rows = [
        Row(Name(str(device["device"])), [Cell(device_text(device.get(column), column)) for column in columns])
        for device in devices
    ]
    return Table(["device", *map(device_heading, columns)], rows)


def device_heading(column: str) -> str:
    """Return the heading of a column of `devices.jsonl`: `local_accuracy` becomes `local accuracy, %`."""
    metric = _metric(column)
    if column in SHARES:
        return f"{column.replace('_', ' ')}, %"
    if metric is None:
        return {"train_examples": "train examples", "examples": "test examples"}.get(column, column.replace("_", " "))
    model = column.removesuffix(metric).replace("_", " ")
    return f"{model}{heading(metric)}"


def device_text(value: Any, column: str) -> str:
    """Return a value of `devices.jsonl` as text."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column in SHARES:
        return f"{100 * value:.1f}"
    if metric := _metric(column):
        return score(value, metric)
    return significant(value) if isinstance(value, float) else str(value)


def _names(comparison: Comparison) -> Mapping[str, Name]:
    """Return each configuration's name, with its overrides and marks as notes, by label."""
    styles = strokes(comparison.rows)
    names = {}
    for row in comparison.rows:
        first, *notes = row.label.split(" ")
        if row.chosen:
            notes.append(f"chosen from {row.selection.candidates}")
        if row.improving:
            notes.append("still improving")
        if row.pruned:
            notes.append(f"pruned {after(row.pruned)}")
        names[row.label] = Name(first, styles[row.label].color, notes)
    return names


def _cell(comparison: Comparison, row: Configuration, column: Column, factor: float) -> Cell:
    spread, hurt = row.values[column.key], row.hurt.get(column.key)
    text, deviation = cell(spread and spread.times(factor), column.unit)
    if hurt:
        deviation = "\n".join(line for line in (hurt.range or deviation, hurt.one_example) if line)
    return Cell(text, deviation, comparison.is_best(row, column))


def _label_cell(label: str) -> Cell:
    """Return a label with one override per line, which leaves more width for the figures."""
    first, *overrides = label.split(" ")
    return Cell(first, "\n".join(overrides))


def _paired_cells(row: Paired, metric: str) -> list[Cell]:
    figures = (
        *(signed(row.difference, metric), signed_range(row.interval, metric)),
        *(probability(row.p), probability(row.p_holm)),
        *(row.better, row.equal, row.worse, row.pairs, row.seeds, f"{row.units} {row.unit}"),
    )
    return [Cell(str(figure)) for figure in figures]


def _metric(column: str) -> str | None:
    """Return the metric in a column's name: `balanced_accuracy` for `local_balanced_accuracy`; None without one."""
    words = column.split("_")
    return next((metric for i in range(len(words)) if is_metric(metric := "_".join(words[i:]))), None)
