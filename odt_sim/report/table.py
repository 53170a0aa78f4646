"""The comparison as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from odt_sim.report.columns import Column
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.facts import privacy
from odt_sim.report.formatting import cell, metric_name, score

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
    ),
    *("others", "rounds_to_target", "megabytes", "train_calls", "infer_calls", "state_kilobytes", "seconds"),
)
"""The columns of a wide terminal; the page has them all."""

_DISPENSABLE = (
    *("seconds", "state_kilobytes", "infer_calls", "hurt_global", "std", "mean", "others", "train_calls"),
    *("unseen_adapted", "rounds_to_target"),
)
"""Those of them that a narrower one goes without, the first of them first."""

_NAME = 15
"""The least width of names."""

_LONGEST_NAME = 32
"""Longer names are folded rather than that a column goes."""


def comparison_table(comparison: Comparison, width: int = 100) -> Table | Text:
    """Returns the comparison as a table; names are folded where they must be, never cut.

    The best value of a column is bold and carries a star. Below the table stand the failed runs with their errors; they
    stand alone where no run was completed.

    Args:
        comparison: What `compare` returned.
        width: The terminal's, in characters; the narrower it is, the fewer columns there are.
    """
    if not comparison.rows:
        return Text("\n").join(_failures(comparison))
    shown = _fitting(comparison, width)
    table = plain_table(_title(comparison))
    table.add_column("\nstrategy", overflow="fold")
    for column in shown:
        table.add_column(_heading(column), justify="right", no_wrap=True)
    for row in comparison.rows:
        table.add_row(name(row), *(_cell(comparison, row, column) for column in shown))
    table.caption = _caption(comparison, shown)
    return table


def plain_table(title: str) -> Table:
    """Returns an empty table in the style of all tables of the terminal."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="none",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def name(row: Configuration) -> Text:
    """Returns a configuration's label, each override on a line of its own; a dagger where it was chosen of several."""
    first, *overrides = row.label.split(" ")
    return Text("\n  ".join([f"{first} †" if row.chosen else first, *overrides]))


def _fitting(comparison: Comparison, width: int) -> Sequence[Column]:
    """Returns the columns beside which the names still have room."""
    known = {column.key: column for column in comparison.columns}
    shown = [known[key] for key in _SHOWN if key in known]
    longest = max(len(line) for row in comparison.rows for line in name(row).plain.split("\n"))
    for key in _DISPENSABLE:
        taken = sum(1 + _width(comparison, column) for column in shown)
        if width - taken >= max(_NAME, min(longest, _LONGEST_NAME)):
            break
        shown = [column for column in shown if column.key != key]
    return shown


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
    value, deviation = cell(spread, column.unit)
    best = spread is not None and spread.mean == comparison.best(column)
    text = Text(f"{value}*" if best else f"{value} ", style="bold green" if best else "")
    return text.append(f"\n{deviation} ", style="dim") if deviation else text


def _caption(comparison: Comparison, shown: Sequence[Column]) -> Text:
    seeds = max(len(row.runs) for row in comparison.rows)
    lines = []
    if any(comparison.best(column) is not None for column in shown):
        lines.append("* best of its column")
    if any(column.key.startswith("hurt_") for column in shown):
        lines.append("hurt: % of devices worse off than with the local-only or global model")
    if any(row.chosen for row in comparison.rows):
        others = any(row.choice.label not in (None, row.label) for row in comparison.rows)
        hint = " (odt-sim report DIR --best keeps only these)" if others else ""
        lines.append(f"† chosen among its strategy's configurations, on validation examples{hint}")
    if seeds > 1:
        lines.append(f"± sample standard deviation over up to {seeds} seeds")
    if comparison.target is not None and any(column.key == "rounds_to_target" for column in shown):
        lines.append(
            f"rounds to a mean of {score(comparison.target, comparison.metric)}; – is not reached by every seed"
        )
    if promised := privacy(comparison):
        lines.append(promised)
    lines.append("the page has more columns")
    return Text("\n").join([Text("\n".join(lines), style="dim"), *_failures(comparison)])


def _failures(comparison: Comparison) -> list[Text]:
    return [
        Text.assemble(("failed  ", "bold red"), f"{failure.label}: {failure.error}") for failure in comparison.failures
    ]
