"""The Hydra application: one job is one run."""

import math
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import get_original_cwd
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.markup import escape

from odt_sim.cli import build as configuration
from odt_sim.cli import interrupt
from odt_sim.cli.overrides import CONFIG, check_overrides, explained, sweepable
from odt_sim.cli.resume import kept_overrides, resumed, run_folder, settle
from odt_sim.cli.settings_reference import help_text
from odt_sim.data.leakage import find_leakage
from odt_sim.errors import CheckpointError, ConfigurationError, FileError, OdtSimError
from odt_sim.files import remove_temporaries, write_file
from odt_sim.metrics.fleet import TASK_METRICS
from odt_sim.observers.base import Observer, Observers, RunInfo
from odt_sim.observers.display import Display
from odt_sim.persistence.lock import locked
from odt_sim.persistence.records import Row
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.simulation.start import holds_results
from odt_sim.trackers.base import Tracker
from odt_sim.trackers.flat import settings_of

NOT_BEGUN = "no round was committed yet"

KEPT = ("config.yaml", "hydra.yaml", "overrides.yaml")
"""What of a run's configuration is kept in its folder, below `.hydra`."""

OmegaConf.register_new_resolver("odt_run_folder", run_folder, replace=True)


@dataclass
class Outcome:
    """How the last call of `launch` went, told by its jobs: Hydra would print lines of its own around an exception.

    Attributes:
        folder: The folder of the last job, or of the whole sweep once that has ended; None where no job began.
        error: The error of a job that was not one of a sweep; None where it ended well.
        failed: How many jobs of a sweep failed.
    """

    folder: Path | None = None
    error: OdtSimError | None = None
    failed: int = 0


outcome = Outcome()


class RememberSweep(Callback):
    """Tells `launch` the folder of a sweep that has ended, and keeps a sweep small; `conf/config.yaml` names it."""

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Drops the configurations, a quarter of a megabyte, that Hydra would keep of each job until the last has ended."""
        job_return.cfg = job_return.hydra_cfg = None

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Hydra calls it; what it raised, Hydra would turn into a warning."""
        outcome.folder = Path(config.hydra.sweep.dir)


def launch(arguments: Sequence[str]) -> Outcome:
    """Runs the Hydra application: `odt-sim run`.

    Args:
        arguments: Hydra's flags and overrides.

    Raises:
        ConfigurationError: An override does not fit, or the folder of the run cannot be made.
        OdtSimError: The run failed; a sweep goes on with its other jobs.
        KeyboardInterrupt: `odt_sim.cli.interrupt.tell` has been told how to go on.
    """
    if {"-h", "--help"} & set(arguments):
        print(help_text())
        return Outcome()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # lets errors reach us, so that they become one line
    before = sys.argv
    outcome.folder, outcome.error, outcome.failed = None, None, 0
    interrupt.tell(NOT_BEGUN)
    try:
        # Hydra takes -m before the overrides only.
        given = sweepable(resumed(arguments))
        configuration.add_working_folder()
        check_overrides(given)
        sys.argv = ["odt-sim run", *sorted(given, key=lambda argument: argument not in ("-m", "--multirun"))]
        application()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(explained(error)) from error
    except (BrokenPipeError, OdtSimError):
        raise
    except Exception as error:
        if outcome.folder is not None:
            raise
        raise ConfigurationError(_not_begun(error)) from error
    finally:
        sys.argv = before
    if outcome.error:
        raise outcome.error
    return outcome


def _not_begun(error: Exception) -> str:
    """Returns why no job has begun, where Hydra met what it has no error for: a folder, or the file of a configuration."""
    if isinstance(error, OSError) and error.filename:
        return (
            f"{error.filename}: cannot make the run's folder ({error.strerror}); "
            "go to a folder that you may write to, or name one: hydra.run.dir=..., with -m hydra.sweep.dir=..."
        )
    return f"a file of the configuration cannot be read: {type(error).__name__}: {explained(error)}"


def _way_on(folder: Path, overrides: Sequence[str] = ()) -> str:
    seen = os.path.relpath(folder, get_original_cwd())
    return f"go on with: odt-sim run {shlex.join([f'run.resume={seen}', *overrides])}"


@hydra.main(config_path="pkg://odt_sim.conf", **CONFIG)
def application(config: DictConfig) -> float:
    """Runs one job; a failed job is recorded in its folder, and a sweep goes on.

    Returns:
        For a sweeper that optimizes: the mean over seen devices of the task's first metric on validation examples; NaN where
        the job failed or there are none.
    """
    settings = HydraConfig.get()
    swept = settings.mode == RunMode.MULTIRUN
    overrides = [override for override in settings.overrides.task if not override.startswith("run.resume=")]
    outcome.folder = folder = Path(settings.runtime.output_dir)
    interrupt.tell(NOT_BEGUN)
    try:
        with locked(folder, lambda line: None):  # the run itself tells it
            if message := settle(config, folder):
                _print(escape(message))
            own = claim(folder, config, [*overrides, *(own_storage(config, settings.sweep.subdir) if swept else [])])
            with _failure_kept(folder, overrides, swept) if own else nullcontext():
                configuration.check(config)
                title = _title(settings.runtime.choices["strategy"], overrides)
                summary = run(config, folder, title, lambda: None if own else keep(folder, config, overrides))
        return _validated(summary)
    except OdtSimError as error:
        interrupt.check()  # what fails then is no failure of the run
        message = _told(error)
        if not swept:
            outcome.error = error
    except Exception as error:
        if not swept:
            raise  # a bug, which its traceback tells best
        interrupt.check()
        traceback.print_exc()
        message = _told(error)
    if swept:
        outcome.failed += 1
        _print(f"[red]failed[/red] {escape(', '.join(overrides))}: {escape(message)}")
    return math.nan


@contextmanager
def _failure_kept(folder: Path, overrides: Sequence[str], swept: bool) -> Iterator[None]:
    """Records in a run's folder, while that is locked, why the run failed; a bug is recorded of a sweep's job alone."""
    try:
        yield
    except Exception as error:
        if swept or isinstance(error, OdtSimError):
            interrupt.check()
            with suppress(FileError):  # the disk may be what failed
                RunFolder(folder).write_failure(_told(error), overrides)
        raise


def _told(error: Exception) -> str:
    return " ".join((str(error) if isinstance(error, OdtSimError) else f"{type(error).__name__}: {error}").split())


def _validated(summary: Row) -> float:
    figures = summary["metrics_validation"][TASK_METRICS[summary["task"]][0]]
    return figures["weighted_mean"] if figures else math.nan


def own_storage(config: DictConfig, job: str) -> list[str]:
    """Gives a job of a sweep its own place below `run.storage`, where that is set.

    Args:
        config: The job's configuration, which is changed.
        job: The job's folder in the sweep.

    Returns:
        The override that says so, by which the job can go on alone.
    """
    if not isinstance(config.run.storage, str):
        return []
    config.run.storage = f"{config.run.storage.rstrip('/')}/{job}"
    quoted = config.run.storage.replace("'", r"\'")
    return [f"run.storage='{quoted}'"]


def claim(folder: Path, config: DictConfig, overrides: Sequence[str]) -> bool:
    """Keeps a new run's configuration in its folder, as Hydra would do even in the folder of an earlier run.

    Args:
        folder: The run's folder.
        config: The configuration.
        overrides: What makes this configuration of the shipped one.

    Returns:
        Whether the folder is this run's own; it is not where the run goes on with an earlier one.

    Raises:
        CheckpointError: The folder holds an earlier run.
        FileError: The folder cannot be written.
    """
    if config.run.resume is not None:
        if holds_results(folder):
            kept = kept_overrides(folder)
            interrupt.tell(_way_on(folder, [override for override in overrides if override not in kept]))
        return False
    if holds_results(folder):
        raise CheckpointError(
            f"{folder}: holds a run already; go on with it by run.resume={folder}, or choose another folder"
        )
    _clean(folder)
    _keep(folder, config, overrides)
    return True


def keep(folder: Path, config: DictConfig, overrides: Sequence[str]) -> None:
    """Keeps in an earlier run's folder what this call has changed of it, so that it goes on by its folder alone.

    Args:
        folder: The run's folder.
        config: The configuration.
        overrides: Those of the run, and then those of this call.

    Raises:
        FileError: The folder cannot be written.
    """
    _clean(folder)
    wanted = list(dict.fromkeys(reversed(overrides)))[::-1]  # of the same ones the last, which decides
    if wanted != kept_overrides(folder):
        fresh = config.copy()
        fresh.run.resume = None
        _keep(folder, fresh, wanted)


def _clean(folder: Path) -> None:
    (folder / ".hydra").mkdir(exist_ok=True)
    remove_temporaries(folder / ".hydra", KEPT)


def _keep(folder: Path, config: DictConfig, overrides: Sequence[str]) -> None:
    for name, content in zip(KEPT, (config, HydraConfig.instance().cfg, list(overrides)), strict=True):
        write_file(folder / ".hydra" / name, OmegaConf.to_yaml(content).encode())


def _title(strategy: str, overrides: Sequence[str]) -> str:
    target = next((o.rpartition(".")[2] for o in overrides if o.startswith("strategy._target_=")), strategy)
    known = ("strategy=", "strategy._target_=", "+experiment=", "run.", "backend", "tracker", "+tracker")
    return " ".join([target, *(override for override in overrides if not override.startswith(known))])


class _Begin(Observer):
    """Keeps the configuration of a resumed run once it begins, and what an interrupt from then on prints."""

    def __init__(self, keep: Callable[[], None], folder: Path) -> None:
        self._keep, self._folder = keep, folder

    def on_begin(self, run: RunInfo) -> None:
        self._keep()

    def on_round(self, record: Row) -> None:
        interrupt.tell(_way_on(self._folder))


def run(config: DictConfig, folder: Path, name: str, on_begin: Callable[[], None]) -> Row:
    """Run one simulation with a live display and the configured tracker.

    Args:
        config: The configuration.
        folder: The run's folder.
        name: The run's title.
        on_begin: Called once nothing refuses the run any more.

    Returns:
        The run's summary.
    """
    configuration.add_working_folder()
    tracker: Tracker = configuration.build(config.tracker, "tracker")
    settings = settings_of(config)
    with closing(Display()) as display:
        display.show(name, config.run.rounds)
        simulation = configuration.simulation(config, folder)
        if message := find_leakage(simulation.data).message:
            display.on_warning(message)
        members = [_Begin(on_begin, folder), display, tracker]
        observers = Observers(members, name=name, settings=settings)
        return simulation.run(resume=config.run.resume is not None, observers=[observers])


def _print(message: str) -> None:
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)
