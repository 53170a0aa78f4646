"""Resume a run: by its folder alone, or the newest unfinished one of the same configuration."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from odt_sim.cli.saved_config import is_saved, is_saved_as, saved_config_dirs, saved_overrides
from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.persistence.run_folder import SUMMARY

AUTO = "auto"

_RESUME = re.compile(r"^\++run\.resume=")


def resumed(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `odt-sim run`; with `run.resume=DIR` those of that run come first.

    An override with `+` that is in both is added once: so the run's own command line resumes it with `run.resume`.

    Raises:
        ConfigurationError: The folder holds no run, or a sweep is to be resumed.
    """
    arguments = [_RESUME.sub("run.resume=", argument) for argument in arguments]
    named = [argument.removeprefix("run.resume=") for argument in arguments if argument.startswith("run.resume=")]
    folder = named[-1].strip("'\"") if named else "null"
    if folder in ("", "null"):
        return list(arguments)
    if {"-m", "--multirun"} & set(arguments):
        raise ConfigurationError("run.resume: resumes a single run, such as one job of a sweep; leave out -m")
    if folder == AUTO:
        return list(arguments)
    if not is_saved(Path(folder)):
        raise ConfigurationError(f"run.resume: {folder} is not the folder of a run; give one that odt-sim run has made")
    given = any(argument.startswith(("--config-dir", "-cd")) for argument in arguments)
    config_dirs = [] if given else saved_config_dirs(Path(folder))
    overrides = saved_overrides(Path(folder))
    added = [override for override in overrides if override.startswith("+")]
    own = [argument for argument in arguments if argument not in added]
    return [*config_dirs, *overrides, *own, "hydra.mode=RUN"]


def run_folder(resume: str | None, fresh: str, *, _root_: DictConfig) -> str:
    """Return a run's folder: the resolver `odt_run_folder` of `conf/config.yaml`.

    Args:
        resume: The folder of a run; `AUTO` for the newest unfinished one of the same configuration; None for a new one.
        fresh: The folder of a new run, `<all runs>/<date>/<time>`.
        _root_: The whole configuration, which OmegaConf passes.
    """
    if resume != AUTO:
        return resume or fresh
    folders = sorted(Path(fresh).parents[1].glob("*/*"), reverse=True)
    same = (folder for folder in folders if _is_unfinished(folder) and is_saved_as(folder, _root_))
    return str(next(same, fresh))


def settle(config: DictConfig, folder: Path) -> str | None:
    """Replace `run.resume=auto` by the run's folder, or by null for a new run.

    Returns:
        A line for the user; None if it was not `AUTO`.

    Raises:
        CheckpointError: The user named a folder that holds a run of another configuration.
    """
    if config.run.resume != AUTO:
        return None
    if not is_saved(folder):
        config.run.resume = None
        return f"no unfinished run of this configuration; starting a new one in {os.path.relpath(folder)}"
    if not is_saved_as(folder, config):
        raise CheckpointError(
            f"{folder}: holds a run of another configuration; resume it with run.resume={folder}, or choose another folder"
        )
    config.run.resume = str(folder)
    return f"resuming {os.path.relpath(folder)}"


def _is_unfinished(folder: Path) -> bool:
    return is_saved(folder) and not (folder / SUMMARY).exists()
