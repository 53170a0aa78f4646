"""Cells of a benchmark, each one strategy on one task, and their outcomes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from odt_sim._support.files import write_file
from odt_sim.errors import CheckpointError
from odt_sim.persistence.run_folder import document
from odt_sim.tuning.plan import Plan
from odt_sim.tuning.winners import Winner

FOLDER = "cells"
Status = Literal["ran", "refused", "failed"]


@dataclass(frozen=True)
class Cell:
    """A strategy on a task.

    Attributes:
        task: The task's name.
        strategy: The strategy's name.
        plan: The tuning of all strategies on the task.
    """

    task: str
    strategy: str
    plan: Plan

    @property
    def path(self) -> Path:
        """The file of the outcome."""
        return self.plan.folder / FOLDER / f"{self.strategy}.json"

    @property
    def log(self) -> Path:
        """The log file with the output of its runs."""
        return self.path.with_suffix(".log")

    def dumps(self) -> str:
        """Return the cell as a line of JSON."""
        plan = {**asdict(self.plan), "folder": str(self.plan.folder)}
        return json.dumps({"task": self.task, "strategy": self.strategy, "plan": plan})


def loaded_cell(line: str) -> Cell:
    """Return the cell that `Cell.dumps` wrote."""
    content = json.loads(line)
    plan = {**content.pop("plan")}
    return Cell(plan=Plan(**{**plan, "folder": Path(plan["folder"])}), **content)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a cell.

    Attributes:
        status: `ran`; `refused`, if the strategy cannot run on the task, so that its first trial does not start;
            `failed`, if no trial has results, or not all seeds of the report have.
        reason: The reason why it did not run; empty if it ran.
        winner: The settings that the search chose; None if it chose none.
        budget: The number of trials.
        seeds: The seeds of the report.
        seconds: The duration in seconds.
    """

    status: Status
    reason: str = ""
    winner: Winner | None = None
    budget: int
    seeds: Sequence[int]
    seconds: float = 0.0


def write_outcome(cell: Cell, outcome: Outcome) -> None:
    """Write the outcome of a cell.

    Raises:
        FileError: It cannot be written.
    """
    write_file(cell.path, document(asdict(outcome)))


def read_outcome(path: Path) -> Outcome | None:
    """Return the outcome of a cell; None if it has not ended.

    Raises:
        CheckpointError: The file is damaged.
    """
    if not path.exists():
        return None
    try:
        content: Mapping[str, Any] = json.loads(path.read_bytes())
        chosen = content["winner"]
        return Outcome(**{**content, "winner": chosen and Winner(**chosen)})
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: damaged; remove it and run the benchmark again") from error


def ended(cell: Cell) -> Outcome | None:
    """Return the outcome of a cell that need not run again: it did not fail, and budget and seeds are the same.

    Failed cells run again, since the cause may be gone, such as a full disk or a lack of memory.
    """
    found = read_outcome(cell.path)
    if found is None or found.status == "failed":
        return None
    same = (found.budget, [*found.seeds]) == (cell.plan.budget, [*cell.plan.seeds])
    return found if same else None
