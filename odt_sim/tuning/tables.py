"""The winners of a tuning with their trials and search ranges, for the console and for the report's page."""

from collections.abc import Iterator, Sequence

from rich.table import Table as ConsoleTable

from odt_sim.report.page import Section
from odt_sim.report.page_tables import Cell, Name, Row, Table
from odt_sim.tuning.plan import Plan
from odt_sim.tuning.winners import Winner

TITLE = "Best trial of each strategy on validation examples"
HEADINGS = ("strategy", "trials", "validation", "best setting", "searched")


def winners_table(plan: Plan, winners: Sequence[Winner]) -> ConsoleTable:
    """Return the winners as a table for the console."""
    table = ConsoleTable(title=TITLE, box=None)
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=heading != HEADINGS[-1], overflow="fold")
    for won in winners:
        for name, cells in _rows(plan, won):
            table.add_row(name, *cells)
    return table


def winners_section(plan: Plan, winners: Sequence[Winner]) -> Section:
    """Return the winners as a section of the page, with a note for each strategy without one."""
    rows = [Row(Name(name), [Cell(cell) for cell in cells]) for won in winners for name, cells in _rows(plan, won)]
    found = {won.strategy for won in winners}
    caption = (
        f"{TITLE}: search by {plan.sweeper} with {plan.budget} trials of each strategy, all with seed {plan.tuning_seed}, "
        "which is none of the reported seeds. Test examples have no part in the choice. Ranges are in Hydra's syntax; "
        "log: on a logarithmic scale."
    )
    notes = [f"{each}: no trial has a validation figure." for each in plan.strategies if each not in found]
    return Section("Tuning", caption, Table(HEADINGS, rows), notes)


def _rows(plan: Plan, won: Winner) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield a strategy and its cells, and a row for each further setting."""
    best = dict(each.split("=", 1) for each in won.settings)
    trials = f"{won.trials} ({won.failed} failed)" if won.failed else str(won.trials)
    first = (won.strategy, trials, f"{won.validation:.4g}")
    for key, values in plan.searched(won.strategy).items():
        name, *cells = first
        yield name, [*cells, f"{key}={best[key]}", values]
        first = ("", "", "")
