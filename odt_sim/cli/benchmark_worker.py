"""A process of `odt-sim benchmark`: it processes cells, each a strategy to tune and run on a task.

Each line of standard input is a cell (`Cell.dumps`); a line on standard output answers it once its outcome is written.
The process ends as soon as standard input ends; the next command resumes the interrupted work.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from odt_sim._support.text import one_line
from odt_sim.benchmark.cells import Cell, Outcome, Status, loaded_cell, write_outcome
from odt_sim.cli.run import launch
from odt_sim.errors import OdtSimError
from odt_sim.persistence.run_folder import FAILURE, INITIAL_MODEL, SUMMARY, RunFolder
from odt_sim.tuning.processes import place_of
from odt_sim.tuning.winners import winner


def run_cell(cell: Cell) -> Outcome:
    """Tune a strategy on a task, run the winner with each seed of the report, and return the outcome.

    Raises:
        OdtSimError: A configuration does not fit.
    """
    plan = cell.plan
    search = plan.search_folder(cell.strategy)
    _launch(cell, [*plan.search(cell.strategy), "hydra.sweeper.n_trials=1"], search)
    if reason := refusal(search / "0"):
        return _outcome(cell, "refused", reason)
    _launch(cell, plan.search(cell.strategy), search)
    chosen = winner(cell.strategy, search)
    if chosen is None:
        return _outcome(cell, "failed", f"no trial out of {plan.budget} has a validation metric")
    folder = plan.run_folder(cell.strategy, chosen.trial)
    _launch(cell, plan.report(cell.strategy, chosen.settings), folder)
    done, failures = (sorted(folder.glob(f"*/{name}")) for name in (SUMMARY, FAILURE))
    if len(done) < len(plan.seeds):
        error = f": {_error(failures[0].parent)}" if failures else ""
        reason = f"{len(plan.seeds) - len(done)} of {len(plan.seeds)} seeds failed{error}"
        return replace(_outcome(cell, "failed", reason), winner=chosen)
    return replace(_outcome(cell, "ran"), winner=chosen)


def _outcome(cell: Cell, status: Status, reason: str = "") -> Outcome:
    return Outcome(status=status, reason=reason, budget=cell.plan.budget, seeds=cell.plan.seeds)


def _launch(cell: Cell, arguments: list[str], folder: Path) -> None:
    own = [f"--config-dir={cell.config_folder}"] if cell.config_folder else []
    launch(["-m", *own, *arguments, place_of(folder)])


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


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    cells: SimpleQueue[str] = SimpleQueue()
    Thread(target=_read, args=(cells,), daemon=True).start()
    while True:
        cell = loaded_cell(cells.get())
        _log_to(cell.log)
        started = time.monotonic()
        try:
            outcome = run_cell(cell)
        except OdtSimError as error:
            outcome = _outcome(cell, "failed", one_line(error))
        write_outcome(cell, replace(outcome, seconds=time.monotonic() - started))
        print("done", file=answers, flush=True)


def _read(cells: "SimpleQueue[str]") -> None:
    for line in sys.stdin:
        cells.put(line)
    os._exit(0)


def _log_to(path: Path) -> None:
    """Redirect the output of this process and its children to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)


if __name__ == "__main__":
    _serve()
