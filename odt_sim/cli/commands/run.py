"""The command `odt-sim run`: a single run, or a sweep."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from odt_sim._support.text import one_line
from odt_sim._support.user_code import add_working_folder, exits_are_errors
from odt_sim.cli.commands.report import print_comparison, track_report
from odt_sim.cli.commands.resume import MULTIRUN, named_folder, resume_hint, resumed
from odt_sim.cli.commands.run_help import run_help
from odt_sim.cli.hydra.options import option_places, parsed_arguments
from odt_sim.cli.hydra.overrides import CONFIG, check_overrides, explained, quoted, sweepable
from odt_sim.cli.hydra.saved_config import named_start
from odt_sim.cli.hydra.sweepers import register_sweepers
from odt_sim.cli.messages import warn
from odt_sim.errors import ConfigurationError, OdtSimError
from odt_sim.persistence.run_folder import SEARCH_PATH
from odt_sim.simulation.executors.submitted import is_submitted, lost

HELP = {"-h", "--help"}


@dataclass
class Outcome:
    """The outcome of a command's jobs.

    Attributes:
        folder: The folder of the run or of the whole sweep; None if no job started.
        error: The error of a single run, kept here because Hydra would print additional lines around an exception.
        failed: The number of failed jobs of a sweep.
        reason: The error message of the last failed job.
    """

    folder: Path | None = None
    error: OdtSimError | None = None
    failed: int = 0
    reason: str | None = None


class Folders(Callback):
    """Records the folder of this process's last sweep, and warns about folders that are ignored or that Ray would delete.

    Attributes:
        sweep: The sweep's folder, which Hydra does not return; None if no sweep has started.
    """

    sweep: Path | None = None

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Warn about the folder of a run."""
        if is_submitted():
            warn(lost(Path(config.hydra.run.dir), "hydra.run.dir"))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Record the folder of a sweep, and warn about it."""
        Folders.sweep = Path(config.hydra.sweep.dir)
        if any(override.startswith("hydra.run.dir=") for override in config.hydra.overrides.hydra):
            warn("hydra.run.dir is ignored with -m; set the sweep's folder with hydra.sweep.dir")
        warn(lost(Folders.sweep, "hydra.sweep.dir"))


def run(arguments: Sequence[str]) -> int:
    """Run an experiment or a sweep, print the comparison and return the exit code."""
    folder = named_folder(arguments)
    with named_start(Path(folder) if folder else None):
        outcome = launch(arguments)
    if outcome.folder is None:
        return 1 if outcome.failed else 0
    comparison = print_comparison([outcome.folder])
    track_report(comparison, outcome.folder)
    return 1 if outcome.failed or comparison.failures else 0


def launch(arguments: Sequence[str]) -> Outcome:
    """Run an experiment or a sweep.

    Args:
        arguments: Hydra's flags and overrides.

    Raises:
        ConfigurationError: An override does not fit, or the run's folder cannot be created.
        OdtSimError: The run failed. A sweep continues with its other jobs.
    """
    outcome = Outcome()
    add_working_folder()
    if HELP & set(arguments):
        options, _ = parsed_arguments([each for each in arguments if each not in HELP])
        topics = [each for each in options.overrides if not each.startswith(SEARCH_PATH)]
        print(run_help(topics, option_places(options.config_dir, options.overrides)))
        return outcome

    @hydra.main(config_path="pkg://odt_sim.conf", **CONFIG)
    def application(config: DictConfig) -> float:
        # The simulation takes longer to import than Hydra finds a mistake.
        from odt_sim.cli.commands.job import run_job

        return run_job(config, outcome)

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises errors instead of printing them
    register_sweepers()
    given = arguments = [quoted(argument) for argument in arguments]
    before, Folders.sweep = sys.argv, None
    try:
        given = sweepable(resumed(arguments))
        with exits_are_errors():  # the check imports modules of the user
            check_overrides(given)
        # Hydra accepts -m only before the overrides.
        sys.argv = ["odt-sim run", *sorted(given, key=lambda argument: argument not in MULTIRUN)]
        application()
    except (HydraException, OmegaConfBaseException) as error:
        if isinstance(error.__cause__, OdtSimError):  # a sweeper of odt_sim refuses a setting
            raise error.__cause__ from error
        check_overrides(given, composes=False)  # names the nearest key
        raise ConfigurationError(explained(error)) from error
    except (BrokenPipeError, OdtSimError):
        raise
    except KeyboardInterrupt as stop:
        # A job adds its own hint; this is for interrupts between jobs, or while a launcher runs them elsewhere.
        if Folders.sweep and not hasattr(stop, "__notes__"):
            stop.add_note(resume_hint(Folders.sweep, Path.cwd()))
        raise
    except Exception as error:
        if outcome.folder is not None:
            raise
        if isinstance(error, OSError) and error.filename:
            raise ConfigurationError(
                f"{error.filename}: cannot create the run's folder ({error.strerror}); choose a writable one: "
                "hydra.run.dir=..., or with -m hydra.sweep.dir=..."
            ) from error
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise ConfigurationError(f"cannot read a configuration file: {reason}") from error
    finally:
        sys.argv = before
    if outcome.error:
        raise outcome.error
    outcome.folder = outcome.folder or Folders.sweep
    return outcome
