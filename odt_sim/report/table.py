"""The comparison as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from odt_sim.report.comparison import COLUMNS, Column, Comparison, Configuration
from odt_sim.report.formatting import cell, metric_name

_DISPENSABLE = ("mean", "hurt_global", "std", "seconds")
"""The columns that a narrow terminal goes without, the first of them first; the page has them all."""

_NAME = 15
"""The width below which names are not squeezed."""


def comparison_table(comparison: Comparison, width: int = 100) -> Table | Text:
    """Returns the comparison as a table; names are folded where they must be, never cut.

    The best value of a column is bold and carries a star. Below the table stand the failed runs with their errors; they
    stand alone where no run was completed.

    Args:
        comparison: What `compare` returned.
        width: The terminal's, in characters. With 100 all columns fit; with less than about 95 some are left out.
    """
    if not comparison.rows:
        return Text("\n").join(_failures(comparison))
    columns = _fitting(comparison, width)
    table = Table(
        title=_title(comparison),
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("\nstrategy", overflow="fold")
    for column in columns:
        table.add_column(_heading(column), justify="right", no_wrap=True)
    for row in comparison.rows:
        table.add_row(Text(row.label.replace(" ", "\n  ")), *(_cell(comparison, row, column) for column in columns))
    table.caption = _caption(comparison, complete=len(columns) == len(COLUMNS))
    table.caption_justify = "left"
    table.caption_style = "none"
    return table


def _fitting(comparison: Comparison, width: int) -> Sequence[Column]:
    """Returns the columns beside which the names still have room."""
    columns = list(COLUMNS)
    for key in _DISPENSABLE:
        if width - sum(1 + _width(comparison, column) for column in columns) >= _NAME:
            break
        columns = [column for column in columns if column.key != key]
    return columns


def _width(comparison: Comparison, column: Column) -> int:
    texts = [_heading(column), *(_cell(comparison, row, column) for row in comparison.rows)]
    return max(len(line) for text in texts for line in text.plain.split("\n"))


def _title(comparison: Comparison) -> str:
    percent = ", %" if comparison.metric == "accuracy" else ""
    return f"Test {metric_name(comparison.metric)} by strategy{percent}"


def _heading(column: Column) -> Text:
    return Text(column.title if "\n" in column.title else f"\n{column.title}")


def _cell(comparison: Comparison, row: Configuration, column: Column) -> Text:
    spread = row.values[column.key]
    value, deviation = cell(spread, column, comparison.metric)
    best = spread is not None and spread.mean == comparison.best(column)
    text = Text(f"{value}*" if best else f"{value} ", style="bold green" if best else "")
    return text.append(f"\n{deviation} ", style="dim") if deviation else text


def _caption(comparison: Comparison, *, complete: bool) -> Text:
    seeds = max(len(row.runs) for row in comparison.rows)
    lines = ["* best of its column; hurt: % of devices worse off than with the local-only or global model"]
    if seeds > 1:
        lines.append(f"± sample standard deviation over up to {seeds} seeds")
    if not complete:
        lines.append("a wider terminal and the page have more columns")
    return Text("\n").join([Text("\n".join(lines), style="dim"), *_failures(comparison)])


def _failures(comparison: Comparison) -> list[Text]:
    return [
        Text.assemble(("failed  ", "bold red"), f"{failure.label}: {failure.error}") for failure in comparison.failures
    ]
