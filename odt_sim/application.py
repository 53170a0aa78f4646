"""The Hydra application: one job is one run."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape

from odt_sim import config as configuration
from odt_sim.errors import CheckpointError, ConfigurationError, OdtSimError
from odt_sim.progress import shown
from odt_sim.report.records import RunFolder
from odt_sim.sweep import print_comparison

CONFIG = {"version_base": "1.3", "config_name": "config"}

OmegaConf.register_new_resolver("odt_run_folder", lambda resume, fresh: resume or fresh, replace=True)


class Failure:
    """How the last job of this process that was not one of a sweep ended.

    Hydra would print lines of its own around an exception, so a job leaves its error here.

    Attributes:
        error: The error; None where it ended well.
    """

    error: OdtSimError | None = None


@hydra.main(config_path="pkg://odt_sim.conf", **CONFIG)
def application(config: DictConfig) -> None:
    """Runs one job; a failed job is recorded in its folder, and a sweep goes on."""
    settings = HydraConfig.get()
    folder = Path(settings.runtime.output_dir)
    overrides = list(settings.overrides.task)
    swept = settings.mode == RunMode.MULTIRUN
    try:
        configuration.check(config)
        run(config, folder, _title(settings.runtime.choices["strategy"], overrides))
    except OdtSimError as error:
        if RunFolder(folder).summary() is None:
            with suppress(CheckpointError):  # the disk may be what failed
                RunFolder(folder).write_failure(str(error), overrides)
        if not swept:
            Failure.error = error
            return
        message = f"[red]failed[/red] {', '.join(overrides)}: {escape(' '.join(str(error).split()))}"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
    else:
        if not swept:
            print_comparison([folder])


def _title(strategy: str, overrides: Sequence[str]) -> str:
    known = ("strategy=", "+experiment=", "run.")
    return " ".join([strategy, *(override for override in overrides if not override.startswith(known))])


def run(config: DictConfig, folder: Path, name: str) -> None:
    """Runs one simulation with a live display.

    Args:
        config: The configuration.
        folder: The run's folder.
        name: What the display calls it.
    """
    configuration.add_working_folder()
    with shown(name, config.run.rounds) as progress:
        simulation = configuration.simulation(config, folder)
        simulation.run(resume=config.run.resume is not None, on_round=progress.on_round)


def composed(overrides: Sequence[str]) -> DictConfig:
    """Returns the configuration with overrides, outside a run.

    Raises:
        ConfigurationError: An override does not fit.
    """
    try:
        with hydra.initialize_config_module("odt_sim.conf", version_base=CONFIG["version_base"]):
            return hydra.compose(CONFIG["config_name"], overrides=list(overrides))
    except HydraException as error:
        raise ConfigurationError("; ".join(line.strip() for line in str(error).splitlines() if line.strip())) from error
