"""The command `odt-sim run`: one run, or a sweep of several."""

import os
import sys
from collections.abc import Sequence

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from odt_sim.cli.build import add_working_folder
from odt_sim.cli.job import Outcome, exits_are_errors, run_job
from odt_sim.cli.overrides import CONFIG, check_overrides, explained, sweepable
from odt_sim.cli.report import print_comparison
from odt_sim.cli.resume import resumed, run_folder
from odt_sim.cli.settings_reference import help_text
from odt_sim.errors import ConfigurationError, OdtSimError

MULTIRUN = ("-m", "--multirun")

OmegaConf.register_new_resolver("odt_run_folder", run_folder, replace=True)


def run(arguments: Sequence[str]) -> int:
    """Run an experiment or a sweep, print the comparison and return the exit code."""
    outcome = launch(arguments)
    failures = print_comparison([outcome.folder]) if outcome.folder else 0
    return 1 if outcome.failed or failures else 0


def launch(arguments: Sequence[str]) -> Outcome:
    """Run an experiment or a sweep.

    Args:
        arguments: Hydra's flags and overrides.

    Raises:
        ConfigurationError: An override does not fit, or the run's folder cannot be made.
        OdtSimError: The run failed. A sweep continues with its other jobs.
    """
    outcome = Outcome()
    if {"-h", "--help"} & set(arguments):
        print(help_text())
        return outcome

    @hydra.main(config_path="pkg://odt_sim.conf", **CONFIG)
    def application(config: DictConfig) -> float:
        return run_job(config, outcome)

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises errors instead of printing them
    before, given = sys.argv, list(arguments)
    try:
        given = sweepable(resumed(arguments))
        add_working_folder()
        with exits_are_errors():  # it imports modules of the user
            check_overrides(given)
        # Hydra accepts -m only before the overrides.
        sys.argv = ["odt-sim run", *sorted(given, key=lambda argument: argument not in MULTIRUN)]
        application()
    except (HydraException, OmegaConfBaseException) as error:
        check_overrides(given, composes=False)  # names the nearest key
        raise ConfigurationError(explained(error)) from error
    except (BrokenPipeError, OdtSimError):
        raise
    except Exception as error:
        if outcome.folder is not None:
            raise
        raise ConfigurationError(_not_started(error)) from error
    finally:
        sys.argv = before
    if outcome.error:
        raise outcome.error
    return outcome


def _not_started(error: Exception) -> str:
    """Return why no job started, for exceptions that are not Hydra's own."""
    if isinstance(error, OSError) and error.filename:
        return (
            f"{error.filename}: cannot make the run's folder ({error.strerror}); "
            "use a writable folder, or name one: hydra.run.dir=..., with -m hydra.sweep.dir=..."
        )
    return f"a file of the configuration cannot be read: {type(error).__name__}: {explained(error)}"
