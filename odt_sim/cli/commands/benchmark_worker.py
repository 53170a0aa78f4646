"""A process of `odt-sim benchmark` for one cell, a strategy to tune and run on a task.

Standard input has the cell in a line (`Cell.dumps`). The process ends as soon as standard input ends; the next command
resumes the interrupted work.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

from odt_sim._support.text import one_line
from odt_sim.benchmark.cells import Cell, Outcome, Status, loaded_cell, write_outcome
from odt_sim.cli.commands.run import launch
from odt_sim.errors import OdtSimError
from odt_sim.persistence.run_folder import FAILURE, INITIAL_MODEL, SUMMARY, SWEEP, RunFolder
from odt_sim.tuning.winners import winner


def run_cell(cell: Cell) -> Outcome:
    """Tune a strategy on a task, run the winner with each seed of the report, and return the outcome.

    Raises:
        OdtSimError: A configuration does not fit.
    """
    plan = cell.plan
    search = plan.search_folder(cell.strategy)
    _launch([*plan.search(cell.strategy), "hydra.sweeper.n_trials=1"], search)
    if reason := refusal(search / "0"):
        return _outcome(cell, "refused", reason)
    _launch(plan.search(cell.strategy), search)
    chosen = winner(cell.strategy, search)
    if chosen is None:
        return _outcome(cell, "failed", f"no trial out of {plan.budget} has a validation metric")
    folder = plan.run_folder(cell.strategy, chosen.trial)
    _launch(plan.report(cell.strategy, chosen.settings), folder)
    done, failures = (sorted(folder.glob(f"*/{name}")) for name in (SUMMARY, FAILURE))
    if len(done) < len(plan.seeds):
        error = f": {_error(failures[0].parent)}" if failures else ""
        reason = f"{len(plan.seeds) - len(done)} of {len(plan.seeds)} seeds failed{error}"
        return replace(_outcome(cell, "failed", reason), winner=chosen)
    return replace(_outcome(cell, "ran"), winner=chosen)


def _outcome(cell: Cell, status: Status, reason: str = "") -> Outcome:
    return Outcome(status=status, reason=reason, budget=cell.plan.budget, seeds=cell.plan.seeds)


def _launch(arguments: list[str], folder: Path) -> None:
    place = f"run.resume={folder}" if (folder / SWEEP).is_file() else f"hydra.sweep.dir={folder}"
    launch(["-m", *arguments, place])


def refusal(trial: Path) -> str:
    """Return why a strategy cannot run at all: the error of a trial that never started; empty if it started.

    Empty, too, if the error was transient or not recorded, such as on a full disk: the search then runs this trial again,
    and if it fails, too, runs again with the command.
    """
    failure = RunFolder(trial).failure()
    lasting = failure is not None and not failure.get("transient")
    return _error(trial) if lasting and not (trial / INITIAL_MODEL).exists() else ""


def _error(folder: Path) -> str:
    return str((RunFolder(folder).failure() or {}).get("error", "ended early"))


def _main() -> None:
    cell = loaded_cell(sys.stdin.readline())
    Thread(target=_end_with_input, daemon=True).start()
    started = time.monotonic()
    try:
        outcome = run_cell(cell)
    except OdtSimError as error:
        outcome = _outcome(cell, "failed", one_line(error))
    write_outcome(cell, replace(outcome, seconds=time.monotonic() - started))
    sys.stdout.flush()
    os._exit(0)  # without waiting for the thread that reads standard input


def _end_with_input() -> None:
    """End the process when its parent has ended."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _main()
