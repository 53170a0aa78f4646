"""Resume a run or a sweep by its folder alone, or the newest unfinished run with the same configuration."""

import os
import re
import shlex
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from odt_sim.cli.hydra.overrides import key_of
from odt_sim.cli.hydra.saved_config import (
    is_saved,
    is_saved_as,
    is_sweep,
    same_model,
    saved_config_dirs,
    saved_overrides,
    saved_sweep,
)
from odt_sim.cli.hydra.sweepers import SEARCH
from odt_sim.cli.messages import say
from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.persistence.run_folder import INITIAL_MODEL, SEARCH_PATH, SUMMARY, RunFolder
from odt_sim.persistence.summary import Summary
from odt_sim.simulation.executors.submitted import is_submitted

AUTO, STORAGE = "auto", "run.storage"
MULTIRUN = ("-m", "--multirun")
REQUEUED = "SLURM_RESTART_COUNT"
"""The environment variable that SLURM sets in jobs that it has requeued."""

_RESUME = re.compile(r"^\++run\.resume=")


def resumed(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `odt-sim run`; with `run.resume=DIR`, preceded by the saved arguments of that run.

    An override with `+` that is in both is added once, so that a run's original command line plus `run.resume` resumes
    it. The folder of a sweep resumes the sweep, with or without -m; given overrides replace saved ones of the same
    keys.

    Raises:
        ConfigurationError: The folder contains neither a run nor a sweep.
    """
    arguments = [_RESUME.sub("run.resume=", argument) for argument in arguments]
    folder = named_folder(arguments)
    if folder is None:
        return list(arguments)
    given = any(argument.startswith(("--config-dir", "-cd", SEARCH_PATH)) for argument in arguments)
    if is_sweep(Path(folder)):
        return _resumed_sweep(arguments, Path(folder), given)
    if set(MULTIRUN) & set(arguments):
        raise ConfigurationError(
            f"run.resume: {folder} is not the folder of a sweep; with -m, give one that odt-sim run -m created"
        )
    if folder == AUTO:
        return list(arguments)
    if not is_saved(Path(folder)):
        raise ConfigurationError(
            f"run.resume: {folder} is not the folder of a run or a sweep; give one that odt-sim run created"
        )
    config_dirs = [] if given else saved_config_dirs(Path(folder))
    overrides = saved_overrides(Path(folder))
    added = [override for override in overrides if override.startswith("+")]
    own = [argument for argument in arguments if argument not in added]
    return [*config_dirs, *overrides, *own, "hydra.mode=RUN"]


def named_folder(arguments: Sequence[str]) -> str | None:
    """Return the value of `run.resume`, a folder or `AUTO`; None for a new run."""
    named = [argument.removeprefix("run.resume=") for argument in arguments if argument.startswith("run.resume=")]
    folder = named[-1].strip("'\"") if named else "null"
    return None if folder in ("", "null") else folder


def _resumed_sweep(arguments: Sequence[str], folder: Path, given_config_dir: bool) -> list[str]:
    """Return the arguments that run the missing jobs of a sweep in its folder."""
    config_dirs, saved = saved_sweep(folder)
    own = [argument for argument in arguments if argument not in MULTIRUN]
    replaced = {"run.resume", "hydra.mode", "hydra.sweep.dir", *map(key_of, own)}
    overrides = [override for override in saved if key_of(override) not in replaced]
    place = str(folder).replace("'", r"\'")
    return ["-m", *([] if given_config_dir else config_dirs), *overrides, *own, f"hydra.sweep.dir='{place}'"]


def run_folder(resume: str | None, fresh: str, *, _root_: DictConfig) -> str:
    """Return a run's folder: the resolver `odt_run_folder` of `conf/config.yaml`.

    Args:
        resume: The folder of a run; `AUTO` for the newest unfinished run with the same configuration; None for a new
            run.
        fresh: The folder of a new run, `<all runs>/<date>/<time>`.
        _root_: The whole configuration, which OmegaConf passes.
    """
    if resume != AUTO:
        return resume or fresh
    folders = sorted(Path(fresh).parents[1].glob("*/*"), reverse=True)
    unfinished = (folder for folder in folders if is_saved(folder) and not (folder / SUMMARY).exists())
    same = (folder for folder in unfinished if is_saved_as(folder, _root_))
    return str(next(same, fresh))


def job_folder(sweep: str, number: int, resume: str | None, *, _root_: DictConfig) -> str:
    """Return the name of a job's folder in its sweep's folder: the resolver `odt_job_folder` of `conf/config.yaml`.

    A resumed sweep may have further values, which changes the numbers of its jobs. Therefore a job uses the folder with
    its configuration. Without one, the folder is named by the job's number, or `<number>-<k>` if another job has that
    folder. Trials of a search always use their numbers, because two trials may draw the same values.

    Args:
        sweep: The sweep's folder.
        number: The job's number.
        resume: `run.resume`; None for a new sweep.
        _root_: The whole configuration, which OmegaConf passes.
    """
    own = Path(sweep) / str(number)
    if resume is None or _root_.hydra.sweeper._target_ == SEARCH or is_saved_as(own, _root_, STORAGE):
        return own.name
    others = sorted(path.parent for path in own.parent.glob("*/.hydra"))
    if same := next((folder for folder in others if is_saved_as(folder, _root_, STORAGE)), None):
        return same.name
    if not is_saved(own) or is_saved_as(own, _root_, STORAGE, "run.rounds"):  # more rounds of the same job
        return own.name
    names = (f"{number}-{k}" for k in count(2))
    return next(name for name in names if not is_saved(own.with_name(name)))


OmegaConf.register_new_resolver("odt_run_folder", run_folder, replace=True)
OmegaConf.register_new_resolver("odt_job_folder", job_folder, replace=True)


def is_search() -> bool:
    """Return whether the job that Hydra runs in this process is a trial of a search."""
    settings = HydraConfig.get()
    return bool(settings.mode == RunMode.MULTIRUN and settings.sweeper._target_ == SEARCH)


def model_before(config: DictConfig, folder: Path, swept: bool) -> Path | None:
    """Return the exported model file with which a resumed run began, or another job of its sweep; None without one.

    Such a job has the same settings of the model and the same strategy. A new version of odt_sim or TensorFlow may
    export another file.

    Args:
        config: The configuration of the run.
        folder: The folder of the run, which may not have begun.
        swept: Whether the run is a job of a sweep.
    """
    others = sorted(path.parent for path in folder.parent.glob("*/.hydra")) if swept else []
    begun = (path for path in (folder, *others) if (path / INITIAL_MODEL).is_file())
    return next((path / INITIAL_MODEL for path in begun if same_model(path, config)), None)


def settle(config: DictConfig, folder: Path, swept: bool) -> Summary | None:
    """Replace `run.resume` by the folder of the run to resume, or by null for a new run.

    Of a resumed sweep, a job that has not started is new. A job that SLURM has requeued, after a preemption or its time
    limit, is resumed.

    Args:
        config: The configuration of the run.
        folder: The folder of the run.
        swept: Whether the run is a job of a sweep.

    Returns:
        The summary of a job of a sweep that is done already; None for any other run.

    Raises:
        CheckpointError: `run.resume` is `AUTO`, but the folder that the user named contains a run with another
            configuration.
    """
    saved, same = is_saved(folder), is_saved_as(folder, config, *([STORAGE] if swept else []))
    if swept and (config.run.resume is not None or (same and REQUEUED in os.environ)):
        config.run.resume = str(folder) if saved else None
        return RunFolder(folder).summary() if same else None
    if config.run.resume == AUTO:
        from rich.markup import escape  # after the checks of the arguments, which must not wait for it

        if saved and not same:
            raise CheckpointError(
                f"{folder}: contains a run of another configuration; resume it with run.resume={folder}, or choose "
                "another folder"
            )
        config.run.resume = str(folder) if saved else None
        relative = escape(os.path.relpath(folder))
        say(
            f"resuming {relative}"
            if saved
            else f"no unfinished run of this configuration; starting a new one in {relative}"
        )
    return None


def resume_hint(folder: Path, start: Path) -> str:
    """Return the command that resumes a run or a sweep from the folder in which this command started."""
    path = start / folder
    if path.is_relative_to(start) and not is_submitted():
        path = path.relative_to(start)
    return f"resume with: odt-sim run {shlex.quote(f'run.resume={path}')}"
