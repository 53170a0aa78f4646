"""One job of `odt-sim run`: a simulation in a folder."""

import math
import os
import traceback
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import get_original_cwd
from omegaconf import DictConfig
from rich.markup import escape

from odt_sim._support.text import one_line, typed_line
from odt_sim._support.user_code import add_working_folder, exits_are_errors
from odt_sim.cli.commands.resume import is_search, model_before, resume_hint, settle
from odt_sim.cli.commands.run import Outcome
from odt_sim.cli.hydra import build as configuration
from odt_sim.cli.hydra.components import build
from odt_sim.cli.hydra.saved_config import claim, save_changes
from odt_sim.cli.messages import say
from odt_sim.data.checks.leakage import find_leakage
from odt_sim.errors import FileError, OdtSimError
from odt_sim.observers.base import Observer, Observers, RunInfo
from odt_sim.observers.display import Display
from odt_sim.observers.early_stopping import EarlyStopping
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.persistence.storage import locked
from odt_sim.persistence.summary import Summary
from odt_sim.simulation.run.checks import check_validates
from odt_sim.trackers.base import Tracker, settings_of
from odt_sim.tuning.search import Pruning, validation_of


class _SaveChanges(Observer):
    """An observer that saves this command's changes to a resumed run, once all checks have passed."""

    def __init__(self, config: DictConfig, overrides: Sequence[str]) -> None:
        self._config, self._overrides = config, overrides

    def on_begin(self, run: RunInfo) -> None:
        save_changes(run.folder, self._config, self._overrides)


def run_job(config: DictConfig, outcome: Outcome) -> float:
    """Run one job; a failure is recorded in the outcome and the job's folder, and a sweep continues.

    Returns:
        The objective for sweepers that optimize: the mean over seen devices of the first metric on validation examples;
        NaN if the job failed or has no validation examples.
    """
    settings = HydraConfig.get()
    swept, folder = settings.mode == RunMode.MULTIRUN, Path(settings.runtime.output_dir)
    outcome.folder = Path(settings.sweep.dir) if swept else folder
    overrides = [override for override in settings.overrides.task if not override.startswith("run.resume=")]
    try:
        job = os.path.relpath(folder, settings.sweep.dir) if swept else None
        return validation_of(_run(config, folder, overrides, job))
    except OdtSimError as error:
        if error.in_user_code and settings.runtime.choices.get("backend") == "serial":  # used for debugging
            traceback.print_exception(error.__cause__)
        message = _one_line(error)
        if not swept:
            outcome.error = error
    except Exception as error:
        if not swept:
            raise  # a bug, so keep its traceback
        traceback.print_exc()
        message = _one_line(error)
    except KeyboardInterrupt as stop:
        start = Path(get_original_cwd())
        begun = swept or RunFolder(folder).holds_results()
        stop.add_note(resume_hint(outcome.folder, start) if begun else "no round has been committed yet")
        raise
    if swept:
        outcome.failed += 1
        said = "for the same reason" if message == outcome.reason else message
        outcome.reason = message
        say(f"[red]failed[/red] {escape(', '.join(overrides))}: {escape(said)}")
    return math.nan


def _run(config: DictConfig, folder: Path, overrides: Sequence[str], job: str | None) -> Summary:
    """Run a job in its locked folder; save the configuration there, and the error if the job fails."""
    with locked(folder, lambda line: None):  # the simulation reports the warning
        resumed = config.run.resume is not None
        if summary := settle(config, folder, job is not None):
            say(escape(" ".join([f"already done: {os.path.relpath(folder)}", *overrides])))
            return summary
        before = model_before(config, folder, job is not None) if resumed else None
        overrides = [*overrides, *(_own_storage(config, job) if job else [])]
        own = claim(folder, config, overrides)
        observers = [] if own else [_SaveChanges(config, overrides)]
        try:
            with exits_are_errors():
                return _simulate(config, folder, overrides, observers, before)
        except Exception as error:
            if own or job is not None:
                with suppress(FileError):  # the disk may be the cause
                    transient = not isinstance(error, OdtSimError) or error.transient
                    RunFolder(folder).write_failure(_one_line(error), overrides, transient=transient)
            raise


def _simulate(
    config: DictConfig, folder: Path, overrides: Sequence[str], observers: Sequence[Observer], before: Path | None
) -> Summary:
    configuration.check(config)
    add_working_folder()
    tracker: Tracker = build(config.tracker, "tracker")
    title = _title(HydraConfig.get().runtime.choices["strategy"], overrides)
    settings = settings_of(config)
    with closing(Display()) as display:
        display.show(title, config.run.rounds)
        simulation = configuration.simulation(config, folder, before, display.on_warning)
        decides = "hydra/sweeper" if is_search() else "run.until"
        if is_search() or config.run.until:
            check_validates(simulation.data, decides, own_examples=simulation.own_examples)
        if message := find_leakage(simulation.data).message:
            display.on_warning(message)
        run = config.run
        stopping = [EarlyStopping(run.until, target=run.target, patience=run.patience)] if run.until else []
        group = Observers([*observers, display, *stopping, *_pruning(), tracker], name=title, settings=settings)
        return simulation.run(resume=config.run.resume is not None, observers=[group])


def _pruning() -> list[Pruning]:
    """Return the pruning of the job that Hydra runs in this process; empty unless its search has a pruner."""
    settings = HydraConfig.get()
    if not is_search() or settings.sweeper.pruner == "none":
        return []
    sweeper, number = settings.sweeper, int(settings.job.num)
    earlier = number - number % sweeper.n_jobs
    return [Pruning(Path(settings.sweep.dir), number, earlier, sweeper.pruner, sweeper.pruner_settings)]


def _own_storage(config: DictConfig, job: str) -> list[str]:
    """Set a separate storage below `run.storage` for a sweep's job, and return the override for resuming this job.

    It contains the name of the sweep, so that several sweeps may have the same `run.storage`.
    """
    if not isinstance(config.run.storage, str):
        return []
    sweep = Path(HydraConfig.get().sweep.dir).absolute().name
    config.run.storage = f"{config.run.storage.rstrip('/')}/{sweep}/{job}"
    quoted = config.run.storage.replace("'", r"\'")
    return [f"run.storage='{quoted}'"]


def _one_line(error: Exception) -> str:
    return one_line(error) if isinstance(error, OdtSimError) else typed_line(error)


def _title(strategy: str, overrides: Sequence[str]) -> str:
    target = next((o.rpartition(".")[2] for o in overrides if o.startswith("strategy._target_=")), strategy)
    omitted = ("strategy=", "strategy._target_=", "experiment=", "run.", "backend", "tracker")
    return " ".join([target, *(each.lstrip("+") for each in overrides if not each.lstrip("+").startswith(omitted))])
