"""The tables of a report's page and of its LaTeX file, filled from a comparison, with their captions and notes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from odt_sim.metrics.fleet import split_seen
from odt_sim.metrics.names import is_metric, title_of
from odt_sim.metrics.units import readable, significant
from odt_sim.persistence.run import Run
from odt_sim.report.columns import COST, HOUR, NEW_USERS, OTHER, OVER_TIME, PHONES, SERVED, Column
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.description import against, config_of, on_each_data, pairs_method, pairs_result, title
from odt_sim.report.equal_budgets import equal_budgets
from odt_sim.report.formatting import (
    UNKNOWN,
    after,
    cell,
    distinct,
    heading,
    metric_unit,
    probability,
    score,
    signed,
    signed_range,
)
from odt_sim.report.notes import excluded, notes, optimism, reported
from odt_sim.report.pairing import Paired
from odt_sim.report.provenance import differences
from odt_sim.report.style import strokes
from odt_sim.report.table import Cell, Row, Table, latex_table

_UNITS = {"percent": ", %", "points": ", points"}

_SPENT = {"kilojoules": "kJ per device", "megabytes": "MB per device", "hours": "busy hours"}
"""The headings of a device's costs, by key."""

_SHARES = ("attack_success", "global_attack_success")
"""Columns of devices that are fractions from 0 to 1, but no metrics."""


def sections(comparison: Comparison) -> list[Table]:
    """Return the tables of the page with captions and notes; empty without a complete run."""
    if not comparison.rows:
        return []
    metric = title_of(comparison.metric)
    tables = [
        figures_table(comparison, SERVED, _served_caption(comparison), [*excluded(comparison), *notes(comparison)]),
        *([paired_table(comparison)] if comparison.paired else []),
        Table(
            "Differences between the runs",
            "Differences between the runs in data, model, versions and machine, in addition to strategies and settings. "
            "Only devices with the same examples are paired.",
            notes=differences(comparison),
        ),
        figures_table(comparison, NEW_USERS, _new_users_caption(comparison)),
        figures_table(
            comparison,
            OVER_TIME,
            f"Test {metric} of the seen devices at the end of the last period, on its examples (last period) and on average "
            "over all periods. When learned: mean over periods, each measured at its own end. Forgetting: decline on the "
            "examples of earlier periods from their best evaluation to the last one.",
        ),
        figures_table(comparison, COST, _cost_caption(comparison)),
        budgets_table(comparison),
        figures_table(
            comparison,
            PHONES,
            "On the simulated clock, over all rounds. J per device and round: mean energy per selection of a device, "
            "including lost work. Peak memory: interpreter and data of the device that needs most. Gini of reports: 0 if all "
            "seen devices reported equally often, near 1 if few did. Never reported: share of seen devices without a report. "
            "Too little memory: share of seen devices that cannot hold model and data. Rarely available: test "
            f"{metric} of the least available quarter of the devices; other devices: of the rest."
            f"{_unseen_train(comparison, 'joules')}",
        ),
        classes_table(comparison),
        figures_table(
            comparison,
            OTHER,
            "Means over the seen devices, weighted by examples: the other metrics on test examples, and "
            f"{metric} on training and validation examples. {optimism(comparison) or ''}".rstrip(),
        ),
    ]
    return [section for section in tables if section.rows or section.notes]


def latex(comparison: Comparison) -> str:
    """Return all tables of the page in LaTeX."""
    head = f"% odt_sim: {title(comparison)}. Needs \\usepackage[T1]{{fontenc}} and \\usepackage{{booktabs}}.\n"
    return head + "".join(latex_table(section) for section in sections(comparison) if section.rows)


def figures_table(comparison: Comparison, question: str, caption: str = "", notes: Sequence[str] = ()) -> Table:
    """Return the table of one question, with best values marked; without rows if no configuration has a figure."""
    columns = [column for column in comparison.columns if column.question == question]
    if not columns:
        return Table(question, caption, notes=notes)
    names = named_rows(comparison)
    values = [[spread.mean for row in comparison.rows if (spread := row.values[column.key])] for column in columns]
    titles, factors = zip(*readable([column.title for column in columns], values), strict=True)
    headings = (title + _UNITS.get(column.unit, "") for title, column in zip(titles, columns, strict=True))
    rows = []
    for row in comparison.rows:
        cells = [figure_cell(comparison, row, *each) for each in zip(columns, factors, strict=True)]
        rows.append(names[row.label]._replace(cells=cells))
    return Table(question, caption, ["strategy", *headings], rows, notes)


def named_rows(comparison: Comparison) -> Mapping[str, Row]:
    """Return a row without cells for each configuration, by label; its overrides and its marks are notes."""
    styles = strokes(comparison.rows)
    rows = {}
    for row in comparison.rows:
        first, *marks = row.label.split(" ")
        if row.chosen:
            marks.append(f"chosen from {row.selection.candidates}")
        if row.improving:
            marks.append("still improving")
        if row.pruned:
            marks.append(f"pruned {after(row.pruned)}")
        rows[row.label] = Row(first, notes=marks, color=styles[row.label].color)
    return rows


def figure_cell(comparison: Comparison, row: Configuration, column: Column, factor: float = 1.0) -> Cell:
    """Return a configuration's figure in a column, with its deviation over seeds or its interval below."""
    spread, hurt = row.values[column.key], row.hurt.get(column.key)
    text, deviation = cell(spread and spread.times(factor), column.unit)
    below = (hurt and hurt.range) or deviation
    return Cell(text, [below] if below else [], comparison.is_best(row, column))


def paired_table(comparison: Comparison) -> Table:
    """Return the gains of each configuration over its reference; without rows if none could be paired."""
    pairs = [row for row in comparison.paired if row.pairs]
    refused = [f"Not paired: {row.label}, {row.refused}." for row in comparison.paired if row.refused]
    name = against(comparison)
    if not pairs:
        return Table(name, "No configuration could be paired.", notes=refused)
    names, cells = named_rows(comparison), [_paired_cells(row, comparison.metric) for row in pairs]
    if len({row.reference for row in pairs}) > 1:
        # one override per line leaves more width for the figures
        references = [str(row.reference).split(" ") for row in pairs]
        cells = [
            {"reference": Cell(first, overrides), **of_row}
            for (first, *overrides), of_row in zip(references, cells, strict=True)
        ]
    return Table(
        name,
        pairs_result(comparison),
        ["strategy", *cells[0]],
        [names[row.label]._replace(cells=[*of_row.values()]) for row, of_row in zip(pairs, cells, strict=True)],
        [pairs_method(comparison), *refused],
    )


def _paired_cells(row: Paired, metric: str) -> dict[str, Cell]:
    texts = {
        "difference": signed(row.difference, metric),
        "95\N{NO-BREAK SPACE}% CI": signed_range(row.interval, metric),
        "p": probability(row.p),
        "p (Holm)": probability(row.p_holm),
        "better": row.better,
        "equal": row.equal,
        "worse": row.worse,
        "pairs": row.pairs,
        "seeds": row.seeds,
        "units": f"{row.units} {row.unit}",
    }
    return {name: Cell(str(text)) for name, text in texts.items()}


def budgets_table(comparison: Comparison) -> Table:
    """Return the metric at equal budgets; without rows if no budget is known for all configurations."""
    caption = (
        f"Mean test {title_of(comparison.metric)} of the seen devices, weighted by test examples, after the last evaluated "
        "round within a budget of rounds, training steps or MB. Each budget is the lowest total of any configuration; "
        "configurations that spend nothing are ignored and fit any budget. No round is chosen here, so values differ from "
        f"those of the reported round.{_unseen_train(comparison)}"
    )
    budgets, names, unit = equal_budgets(comparison), named_rows(comparison), metric_unit(comparison.metric)
    rows = []
    for label in (row.label for row in comparison.unpruned):
        figures = [(*cell(at.values[label], unit), label in at.best) for at in budgets]
        cells = [Cell(text, [*filter(None, [deviation])], best) for text, deviation, best in figures]
        rows.append(names[label]._replace(cells=cells))
    headings = ["strategy", *(at.title + _UNITS.get(unit, "") for at in budgets)]
    return Table("At equal budgets", caption, headings, rows if budgets else [])


def classes_table(comparison: Comparison) -> Table:
    """Return the figures of each device class for each configuration on the clock; without rows if there is none."""
    names, metric = named_rows(comparison), comparison.metric
    classes = [(names[row.label], *item) for row in comparison.rows for item in of_classes(row.runs, metric).items()]
    spent, factors = zip(
        *readable([*_SPENT.values()], [[figures[key] or 0.0 for *_, figures in classes] for key in _SPENT]), strict=True
    )
    rows = []
    for name, device_class, figures in classes:
        costs = [significant(factor * (figures[key] or 0.0)) for key, factor in zip(_SPENT, factors, strict=True)]
        never = f"{100 * (figures['never_reached'] or 0.0):.1f}"
        texts = [f"{figures['devices']:,.0f}", score(figures["score"], metric), *costs, never]
        rows.append(name._replace(cells=[Cell(text) for text in texts], notes=[*name.notes, device_class]))
    return Table(
        "Device classes",
        "Seen devices by class, over the whole run. Metric: mean over the evaluated devices. Energy, traffic and busy time: "
        "mean per device, where busy time runs from download to upload. Never reported: share of the devices without a "
        "report.",
        ["strategy", "devices", heading(metric), *spent, "never reported, %"],
        rows,
    )


def of_classes(runs: Sequence[Run], metric: str) -> dict[str, dict[str, float | None]]:
    """Return the figures of each device class over all seeds.

    Args:
        runs: The runs of a configuration, one per seed.
        metric: The metric of the comparison.

    Returns:
        By class: `devices` (their number, mean over seeds), `never_reached` (the fraction of them), `score` (the mean
        over the evaluated seen devices), and per device over the whole run `kilojoules`, `megabytes` and `hours` at
        work.
    """
    totals = [run.complete.fleet_totals["classes"] for run in runs if run.complete.fleet_totals]
    figures: dict[str, dict[str, float | None]] = {}
    for name in dict.fromkeys(name for of_run in totals for name in of_run):
        of_class = [of_run[name] for of_run in totals if name in of_run]
        devices = sum(each["devices"] for each in of_class)
        seen = [row for run in runs for row in split_seen(run.devices)[0] if row.get("device_class") == name]
        scores = [row[metric] for row in seen if row.get(metric) is not None]
        figures[name] = {
            "devices": devices / len(of_class),
            "never_reached": sum(each["never_reached"] for each in of_class) / devices,
            "score": float(np.mean(scores)) if scores else None,
            "kilojoules": sum(each["joules"] for each in of_class) / 1e3 / devices,
            "megabytes": sum(each["bytes_wifi"] + each["bytes_cellular"] for each in of_class) / 1e6 / devices,
            "hours": sum(each["busy_seconds"] for each in of_class) / HOUR / devices,
        }
    return figures


def devices_table(row: Configuration) -> Table:
    """Return all devices of a configuration, over all seeds, with all recorded figures."""
    several = len(row.runs) > 1
    devices = [
        {"device": record.device, "seed": run.complete.seed, **record} for run in row.runs for record in run.devices
    ]
    recorded = dict.fromkeys(key for device in devices for key in device if device[key] is not None)
    columns = [key for key in recorded if key != "device" and (several or key != "seed")]
    rows = [
        Row(str(device["device"]), [Cell(device_text(device.get(column), column)) for column in columns])
        for device in devices
    ]
    return Table(row.label, "", ["device", *map(device_heading, columns)], rows)


def device_heading(column: str) -> str:
    """Return the heading of a column of `devices.jsonl`: `local_accuracy` becomes `local accuracy, %`."""
    metric = _metric(column)
    if column in _SHARES:
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
    if column in _SHARES:
        return f"{100 * value:.1f}"
    if metric := _metric(column):
        return score(value, metric)
    return significant(value) if isinstance(value, float) else str(value)


def _metric(column: str) -> str | None:
    """Return the metric in a column's name: `balanced_accuracy` for `local_balanced_accuracy`; None without one."""
    words = column.split("_")
    return next((metric for i in range(len(words)) if is_metric(metric := "_".join(words[i:]))), None)


def _served_caption(comparison: Comparison) -> str:
    seeds = max(len(row.runs) for row in comparison.rows)
    keys = {column.key for column in comparison.columns}
    sentences = [
        f"Test {title_of(comparison.metric)} of the devices that take part in training. The best value in each "
        f"column is marked{on_each_data(comparison)}. Hurt: share of devices that the local-only or the global "
        "model would serve better, with its 95 % confidence interval (Wilson over devices, Student's t over seeds that draw "
        "different devices); – if unknown, or if the strategy is that model itself."
    ]
    if "attack_success" in keys:
        sentences.append(
            "Attack success: share of test examples with the attacker's trigger that the device's model, or the global "
            "model, classifies as the attacker wants."
        )
    if "others" in keys:
        sentences.append("Others' data: each device's model on test examples of other devices.")
    if seeds > 1:
        sentences.append(f"± is the sample standard deviation over up to {seeds} seeds.")
    if any(row.chosen for row in comparison.rows):
        sentences.append(
            "The chosen configuration of a strategy has the best validation mean over its seeds; test metrics are not used."
        )
    return " ".join(sentences)


def _new_users_caption(comparison: Comparison) -> str:
    steps = distinct(config_of(run, "fleet", "adaptation_steps") for run in comparison.runs) or "some"
    known = any(column.key == "unseen_adapted" for column in comparison.columns)
    adapted = f" Adapted: after {steps} more local steps on the device's own training examples." if known else ""
    return (
        f"Test {title_of(comparison.metric)} of the devices that take no part in training, with the model "
        f"deployed to them. Every device counts once.{adapted}"
    )


def _cost_caption(comparison: Comparison) -> str:
    target, clock = "", any(run.complete.deploy_joules is not None for run in comparison.runs)
    energy = ", with its energy, which no other table includes" if clock else ""
    if comparison.target is not None:
        target = (
            " Rounds to target: first evaluated round with a weighted mean of "
            f"{score(comparison.target, comparison.metric)} or better; – unless every seed reaches it."
        )
    return (
        "Totals over all rounds: traffic, and the training steps and inference batches of the cohorts. Deploy: steps and "
        f"batches of one deployment to all devices{energy}. State: size of what a device stores between rounds, mean over "
        f"devices. Seconds: wall-clock time. {reported(comparison)}{target}{_unseen_train(comparison)}"
    )


def _unseen_train(comparison: Comparison, cost: str = "training steps") -> str:
    """Return that a cost of local training includes unseen devices; empty without any."""
    if not any(run.name == "local" and run.complete.unseen for run in comparison.runs):
        return ""
    return f" Under local, unseen devices also train in every round; their {cost} are included."
