"""The command `odt-sim run`: a single run, or a sweep."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from odt_sim._support.user_code import add_working_folder, exits_are_errors
from odt_sim.cli.hydra_mode import use_known_mode
from odt_sim.cli.launched import LaunchedSweep
from odt_sim.cli.option_places import option_places, parsed_arguments
from odt_sim.cli.outcome import Outcome
from odt_sim.cli.overrides import CONFIG, check_overrides, explained, quoted, sweepable
from odt_sim.cli.report import print_comparison
from odt_sim.cli.resume import MULTIRUN, named_folder, resume_hint, resumed
from odt_sim.cli.run_help import run_help
from odt_sim.cli.saved_config import named_start
from odt_sim.cli.sweepers import check_sweeper, register_sweepers
from odt_sim.errors import ConfigurationError, OdtSimError
from odt_sim.persistence.config_folders import SEARCH_PATH

HELP = {"-h", "--help"}


def run(arguments: Sequence[str]) -> int:
    """Run an experiment or a sweep, print the comparison and return the exit code."""
    folder = named_folder(arguments)
    with named_start(Path(folder) if folder else None):
        outcome = launch(arguments)
    if outcome.folder is None:
        return 1 if outcome.failed else 0
    from odt_sim.cli.track_report import track_report

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
        from odt_sim.cli.job import run_job  # the simulation, which takes longer to import than Hydra finds a mistake

        return run_job(config, outcome)

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises errors instead of printing them
    use_known_mode()
    register_sweepers()
    given = arguments = [quoted(argument) for argument in arguments]
    before, LaunchedSweep.folder = sys.argv, None
    try:
        given = sweepable(resumed(arguments))
        check_sweeper(given)
        with exits_are_errors():  # the check imports modules of the user
            check_overrides(given)
        # Hydra accepts -m only before the overrides.
        sys.argv = ["odt-sim run", *sorted(given, key=lambda argument: argument not in MULTIRUN)]
        application()
    except (HydraException, OmegaConfBaseException) as error:
        if isinstance(error.__cause__, OdtSimError):  # a sweeper of odt_sim refuses a setting
            raise error.__cause__ from error
        check_overrides(given, composes=False, failure=error)  # names the nearest key
        raise ConfigurationError(explained(error)) from error
    except (BrokenPipeError, OdtSimError):
        raise
    except KeyboardInterrupt as stop:
        # A job adds its own hint; this is for interrupts between jobs, or while a launcher runs them elsewhere.
        if LaunchedSweep.folder and not hasattr(stop, "__notes__"):
            stop.add_note(resume_hint(LaunchedSweep.folder, Path.cwd()))
        raise
    except Exception as error:
        if outcome.folder is not None:
            raise
        raise ConfigurationError(_not_started(error)) from error
    finally:
        sys.argv = before
    if outcome.error:
        raise outcome.error
    outcome.folder = outcome.folder or LaunchedSweep.folder
    return outcome


def _not_started(error: Exception) -> str:
    """Return why no job started, for exceptions of types other than Hydra's."""
    if isinstance(error, OSError) and error.filename:
        return (
            f"{error.filename}: cannot create the run's folder ({error.strerror}); choose a writable one: "
            "hydra.run.dir=..., or with -m hydra.sweep.dir=..."
        )
    return f"cannot read a configuration file: {type(error).__name__}: {explained(error)}"
