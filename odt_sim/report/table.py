"""The comparison as terminal tables: all configurations, and each configuration against its reference."""

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from odt_sim.metrics.names import is_percent, title_of
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.comparison_columns import Column
from odt_sim.report.description import (
    failures,
    hostile,
    hurt_by_one,
    never_trained,
    not_evaluated,
    on_each_data,
    optimism,
    other_seeds,
    privacy,
    undefined,
)
from odt_sim.report.formatting import after, cell, probability, score, signed, signed_range
from odt_sim.report.paired_description import against, fewest, pairs_unit, tested_over
from odt_sim.report.pairing import Paired
from odt_sim.report.provenance import differences

_SHOWN = (
    *(
        "weighted_mean",
        "mean",
        "std",
        "bottom_decile",
        "worst",
        "unseen",
        "unseen_adapted",
        "hurt_local",
        "hurt_global",
        "attack_success",
        "global_attack_success",
    ),
    *("others", "rounds_to_target", "megabytes", "train_calls", "infer_calls", "state_kilobytes", "seconds"),
    *("validation", "optimism"),
)
"""The columns of a wide terminal; the page has all columns."""

_DISPENSABLE = (
    *("optimism", "validation"),
    *("seconds", "state_kilobytes", "infer_calls", "hurt_global", "std", "mean", "others", "train_calls"),
    "global_attack_success",
    *("unseen_adapted", "rounds_to_target", "megabytes", "hurt_local", "unseen", "bottom_decile"),
)
"""The columns that a narrower terminal drops, in this order."""

_NARROWEST_NAME = 15
_LONGEST_NAME = 32
"""The longest name in characters; longer names are folded to keep a column."""


def comparison_table(comparison: Comparison, width: int = 100) -> Table | Text:
    """Return the comparison as a table; names are folded if necessary, never cut.

    The best value of a column is bold and has a star. Failed runs follow the table with their errors; without a
    complete run there is no table.

    Args:
        comparison: The comparison.
        width: The terminal's width in characters; a narrower terminal shows fewer columns.
    """
    if not comparison.rows:
        return Text("\n").join(_failures(comparison))
    shown = _fitting(comparison, width)
    taken = sum(1 + _width(comparison, column) for column in shown)
    percent = ", %" if is_percent(comparison.metric) else ""
    table = _empty_table(f"Test {title_of(comparison.metric)} by strategy{percent}")
    table.add_column("\nstrategy", overflow="fold")
    for column in shown:
        table.add_column(_heading(column), justify="right", no_wrap=True)
    for row in comparison.rows:
        table.add_row(_name(row, width - taken), *(_cell(comparison, row, column) for column in shown))
    table.caption = _caption(comparison, shown)
    return table


def paired_table(comparison: Comparison, width: int = 100) -> Table | Text | None:
    """Return the gains of each configuration over its reference; None if there is no reference.

    Args:
        comparison: The comparison.
        width: The terminal's width in characters; a narrower terminal shows fewer columns.
    """
    known = [row for row in comparison.paired if row.pairs]
    refused = [
        Text.assemble(("not paired  ", "bold"), f"{row.label}: {row.refused}")
        for row in comparison.paired
        if row.refused
    ]
    if not known:
        return Text("\n").join(refused) if refused else None
    columns = {
        heading: [_paired_cells(row, comparison.metric)[heading] for row in known]
        for heading in _fitting_pairs(comparison, known, width)
    }
    taken = sum(1 + max(map(len, (heading, *cells))) for heading, cells in columns.items())
    names = {row.label: _name(row, width - taken) for row in comparison.rows}
    table = _empty_table(f"{against(comparison)}: {pairs_unit(comparison)}")
    table.add_column("strategy", overflow="fold")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for number, row in enumerate(known):
        table.add_row(names[row.label], *(cells[number] for cells in columns.values()))
    lines = [
        "better, equal, worse: number of devices",
        f"CI and p: Student's t over {tested_over(known)}; p adjusted by Holm"
        if any(row.p is not None for row in known)
        else f"no CI or p with fewer than {fewest(known)}",
    ]
    table.caption = Text("\n").join([Text("\n".join(lines), style="dim"), *refused])
    return table


def differences_text(comparison: Comparison) -> Text | None:
    """Return the differences between runs apart from strategies and settings, one per line; None without any."""
    lines = [Text.assemble(("differs  ", "bold"), found.text) for found in differences(comparison)]
    return Text("\n").join(lines) if lines else None


def _empty_table(title: str) -> Table:
    return Table(
        title=Text(title),  # not markup, because a label may contain brackets
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="none",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def _name(row: Configuration, width: float = math.inf) -> Text:
    """Return a configuration's label, one override per line, with marks: selected of several, still improving, pruned.

    The value of an override that is too long gets its own line: if folded within its digits, it would be misread.
    """
    first, *overrides = row.label.split(" ")
    overrides = [item if 2 + len(item) <= width else item.replace("=", "=\n    ", 1) for item in overrides]
    known = ((" †", row.chosen), (" ↗", row.improving), (" ‡", row.pruned))
    marks = "".join(mark for mark, holds in known if holds)
    return Text("\n  ".join([f"{first}{marks}", *overrides]))


def _name_width(comparison: Comparison) -> int:
    """Return the width of the names: the length of the longest line, within limits."""
    longest = max(len(line) for row in comparison.rows for line in _name(row).plain.split("\n"))
    return max(_NARROWEST_NAME, min(longest, _LONGEST_NAME))


def _fitting(comparison: Comparison, width: int) -> Sequence[Column]:
    """Return the columns that leave enough width for the names."""
    known = {column.key: column for column in comparison.columns}
    shown = [known[key] for key in _SHOWN if key in known]
    for key in _DISPENSABLE:
        if width - sum(1 + _width(comparison, column) for column in shown) >= _name_width(comparison):
            break
        shown = [column for column in shown if column.key != key]
    return shown


def _fitting_pairs(comparison: Comparison, known: Sequence[Paired], width: int) -> list[str]:
    cells = [_paired_cells(row, comparison.metric) for row in known]
    shown = list(cells[0])
    for heading in ("equal", "95 % CI", "better", "worse"):
        if width - sum(
            1 + max(len(heading), *(len(row[heading]) for row in cells)) for heading in shown
        ) >= _name_width(comparison):
            break
        shown.remove(heading)
    return shown


def _width(comparison: Comparison, column: Column) -> int:
    texts = [_heading(column), *(_cell(comparison, row, column) for row in comparison.rows)]
    return max(len(line) for text in texts for line in text.plain.split("\n"))


def _heading(column: Column) -> Text:
    return Text(column.title if "\n" in column.title else f"\n{column.title}")


def _cell(comparison: Comparison, row: Configuration, column: Column) -> Text:
    spread = row.values[column.key]
    value, deviation = cell(spread, column.unit)
    if (hurt := row.hurt.get(column.key)) and hurt.range:
        deviation = hurt.range
    best = comparison.is_best(row, column)
    text = Text(f"{value}*" if best else f"{value} ", style="bold green" if best else "")
    return text.append(f"\n{deviation} ", style="dim") if deviation else text


def _paired_cells(row: Paired, metric: str) -> dict[str, str]:
    return {
        "difference": signed(row.difference, metric),
        "95 % CI": signed_range(row.interval, metric),
        "p (Holm)": probability(row.p_holm),
        "better": str(row.better),
        "equal": str(row.equal),
        "worse": str(row.worse),
    }


def _caption(comparison: Comparison, shown: Sequence[Column]) -> Text:
    seeds = max(len(row.runs) for row in comparison.rows)
    lines = []
    if any(comparison.is_best(row, column) for row in comparison.rows for column in shown):
        lines.append(f"* best in its column{on_each_data(comparison)}")
    if hurts := [
        row.hurt.get(column.key) for column in shown if column.key.startswith("hurt_") for row in comparison.rows
    ]:
        interval = ", with its 95 % CI" if any(hurt and hurt.range for hurt in hurts) else ""
        lines.append(f"hurt: % of devices worse off than with the local-only or global model{interval}")
    if any(row.chosen for row in comparison.rows):
        others = any(row.selection.label not in (None, row.label) for row in comparison.rows)
        hint = " (odt-sim report DIR --best shows only these)" if others else ""
        lines.append(f"† chosen from its strategy's configurations on validation examples{hint}")
    if any(row.improving for row in comparison.rows):
        lines.append("↗ validation still improving at the end: the ranking may change with more rounds")
    if ended := sorted(rounds for row in comparison.rows for rounds in row.pruned):
        lines.append(f"‡ pruned by the search {after(ended)}: cannot be the best in a column")
    if seeds > 1:
        lines.append(f"± sample standard deviation over up to {seeds} seeds")
    if comparison.target is not None and any(column.key == "rounds_to_target" for column in shown):
        target = score(comparison.target, comparison.metric)
        lines.append(f"rounds to a mean of {target}; – unless every seed reaches it")
    described = (other_seeds, hostile, not_evaluated, undefined, never_trained, hurt_by_one, optimism, privacy)
    lines += [line for describe in described if (line := describe(comparison))]
    lines.append("the report page has more columns")
    return Text("\n").join([Text("\n".join(lines), style="dim"), *_failures(comparison)])


def _failures(comparison: Comparison) -> list[Text]:
    return [Text.assemble(("failed  ", "bold red"), f"{label}: {error}") for label, error in failures(comparison)]
