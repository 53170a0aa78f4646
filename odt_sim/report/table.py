"""The comparison as a table for the terminal."""

from rich.table import Table
from rich.text import Text

from odt_sim.report.comparison import COLUMNS, Column, Comparison, Configuration
from odt_sim.report.formatting import cell, metric_name


def comparison_table(comparison: Comparison) -> Table:
    """Returns the comparison as a table that fits 100 columns; names are folded, never cut.

    The best value of a column is bold and carries a star. Below the table stand the failed runs with their errors.
    """
    table = Table(title=_title(comparison), title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("\nstrategy", overflow="fold")
    for column in COLUMNS:
        heading = column.title if "\n" in column.title else f"\n{column.title}"
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for row in comparison.rows:
        table.add_row(Text(row.label.replace(" ", "\n  ")), *(_cell(comparison, row, column) for column in COLUMNS))
    table.caption = _caption(comparison)
    table.caption_justify = "left"
    table.caption_style = "none"
    return table


def _title(comparison: Comparison) -> str:
    percent = ", %" if comparison.metric == "accuracy" else ""
    return f"Test {metric_name(comparison.metric)} by strategy{percent}"


def _cell(comparison: Comparison, row: Configuration, column: Column) -> Text:
    spread = row.values[column.key]
    value, deviation = cell(spread, column, comparison.metric)
    best = spread is not None and spread.mean == comparison.best(column)
    text = Text(f"{value}*" if best else f"{value} ", style="bold green" if best else "")
    return text.append(f"\n{deviation} ", style="dim") if deviation else text


def _caption(comparison: Comparison) -> Text:
    seeds = max((len(row.runs) for row in comparison.rows), default=0)
    lines = ["* best of its column; hurt: % of devices worse off than with the local-only or global model"]
    if seeds > 1:
        lines.append(f"± sample standard deviation over up to {seeds} seeds")
    text = Text("\n".join(lines), style="dim")
    for failure in comparison.failures:
        text.append("\nfailed  ", style="bold red").append(f"{failure.label}: {failure.error}", style="none")
    return text
