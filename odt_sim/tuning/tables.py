"""The winners of a tuning with their trials and search ranges, for the console and for the report's page."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table as ConsoleTable

from odt_sim._support.text import counted
from odt_sim.errors import CheckpointError
from odt_sim.report.table import Cell, Row, Table

Choice = Mapping[str, Any]
"""The content of `tuning.json`, see `odt_sim.tuning.winners.choice_of`."""

TITLE = "Best trial of each strategy on validation examples"
HEADINGS = ("strategy", "trials", "validation", "best setting", "searched")


def winners_table(choice: Choice) -> ConsoleTable:
    """Return the winners as a table for the console."""
    table = ConsoleTable(title=TITLE, box=None)
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=heading != HEADINGS[-1], overflow="fold")
    for name, cells in _rows(choice):
        *others, values = cells
        table.add_row(name, *others, values.replace(",", ", "))  # so that a narrow console breaks no number
    return table


def winners_section(choice: Choice) -> Table:
    """Return the winners as a section of the page, with a note for each strategy without one."""
    rows = [Row(name, [Cell(cell) for cell in cells]) for name, cells in _rows(choice)]
    found = {won["strategy"] for won in choice["winners"]}
    caption = (
        f"{TITLE}: search with a budget of {counted(choice['budget'], 'trial')} of each strategy, all "
        f"with seed {choice['tuning_seed']}, which is none of the reported seeds. Test examples have no part in the choice. "
        "Ranges are in Hydra's syntax; log: on a logarithmic scale."
    )
    notes = [f"{each}: no trial has a validation metric." for each in choice["searched"] if each not in found]
    return Table("Tuning", caption, HEADINGS, rows, notes)


def saved_section(path: Path) -> Table:
    """Return the section of a saved `tuning.json`.

    Raises:
        CheckpointError: The file is damaged.
    """
    try:
        return winners_section(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: damaged ({error}); run the same odt-sim tune again") from error


def _rows(choice: Choice) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each strategy with the cells of its first setting, and a row for each further setting."""
    for won in choice["winners"]:
        best = dict(each.split("=", 1) for each in won["settings"])
        trials = f"{won['trials']} ({won['failed']} failed)" if won["failed"] else str(won["trials"])
        first = (won["strategy"], trials, f"{won['validation']:.4g}")
        for key, values in choice["searched"][won["strategy"]].items():
            name, *cells = first
            yield name, [*cells, f"{key}={best[key]}", values]
            first = ("", "", "")
