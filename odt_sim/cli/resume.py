"""Going on with a run: by its folder alone, whose overrides are kept in it, or with the newest one like this."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.persistence.run_folder import SUMMARY

AUTO = "auto"
ELSEWHERE = ("hydra", "backend", "tracker")
"""Parts of a configuration that change no result: where a run's folder is, where it runs, and who is told."""

_RESUME = re.compile(r"^\++run\.resume=")

DAMAGED = (OSError, YAMLError, OmegaConfBaseException, ValueError, TypeError, AttributeError, RecursionError)
"""What reading a damaged configuration may raise."""


def resumed(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of `odt-sim run`, after those of the run that `run.resume` names, where it names one.

    What is added by `+` in both is added once: the command line of a run, with `run.resume`, is one that goes on with it.

    Raises:
        ConfigurationError: The folder holds no run, or a sweep is to be resumed.
    """
    arguments = [_RESUME.sub("run.resume=", argument) for argument in arguments]
    named = [argument.removeprefix("run.resume=") for argument in arguments if argument.startswith("run.resume=")]
    folder = named[-1].strip("'\"") if named else "null"
    if folder in ("", "null"):
        return list(arguments)
    if {"-m", "--multirun"} & set(arguments):
        raise ConfigurationError("run.resume: goes on with a single run, such as one job of a sweep; leave -m out")
    if folder == AUTO:
        return list(arguments)
    if not is_kept(Path(folder)):
        raise ConfigurationError(f"run.resume: {folder} is no folder of a run; give one that odt-sim run has made")
    kept = Path(folder) / ".hydra"
    places = _read(kept / "hydra.yaml", _places)
    given = any(argument.startswith(("--config-dir", "-cd")) for argument in arguments)
    overrides = kept_overrides(Path(folder))
    added = [one for one in overrides if one.startswith("+")]
    own = [argument for argument in arguments if argument not in added]
    return [*([] if given else places), *overrides, *own, "hydra.mode=RUN"]


def run_folder(resume: str | None, fresh: str, *, _root_: DictConfig) -> str:
    """Returns where a run goes: what `conf/config.yaml` calls `odt_run_folder`.

    Args:
        resume: The folder of a run; `AUTO` for the newest unfinished one of the same configuration; None for a new one.
        fresh: The folder of a new run, `<all runs>/<date>/<time>`.
        _root_: The whole configuration, which OmegaConf gives.
    """
    if resume != AUTO:
        return resume or fresh
    found = sorted(Path(fresh).parents[1].glob("*/*"), reverse=True)
    like_this = (folder for folder in found if _is_unfinished(folder) and is_of(folder, _root_))
    return str(next(like_this, fresh))


def settle(config: DictConfig, folder: Path) -> str | None:
    """Sets `run.resume`, where it is `AUTO`, to the run's folder, or to null where that is a new one.

    Returns:
        What to tell the user; None where it was not `AUTO`.

    Raises:
        CheckpointError: The folder was named, and is of a run of another configuration.
    """
    if config.run.resume != AUTO:
        return None
    if not is_kept(folder):
        config.run.resume = None
        return f"no unfinished run of this configuration was found; a new one begins in {os.path.relpath(folder)}"
    if not is_of(folder, config):
        raise CheckpointError(
            f"{folder}: holds a run of another configuration; go on with it by run.resume={folder}, or choose another"
        )
    config.run.resume = str(folder)
    return f"goes on with {os.path.relpath(folder)}"


def kept_overrides(folder: Path) -> list[str]:
    """Returns the overrides that are kept in a run's folder.

    Raises:
        ConfigurationError: They are damaged.
    """
    return _read(folder / ".hydra" / "overrides.yaml", _overrides)


def is_kept(folder: Path) -> bool:
    """Whether a run's configuration is kept in a folder, from which the run can go on."""
    return (folder / ".hydra" / "overrides.yaml").is_file()


def is_of(folder: Path, config: DictConfig) -> bool:
    """Whether a run in a folder is of the same configuration: all but `run.resume`, and the parts `ELSEWHERE`."""
    try:
        kept = OmegaConf.load(folder / ".hydra" / "config.yaml")
    except DAMAGED:
        return False
    return isinstance(kept, DictConfig) and _comparable(kept) == _comparable(config)


def _is_unfinished(folder: Path) -> bool:
    return is_kept(folder) and not (folder / SUMMARY).exists()


def _comparable(config: DictConfig) -> Any:
    """Returns the configuration as a file gives it back, so that one from a file equals one from a command line."""
    compared = OmegaConf.masked_copy(config, [str(key) for key in config if key not in ELSEWHERE])
    OmegaConf.update(compared, "run.resume", None, force_add=True)
    return OmegaConf.to_container(OmegaConf.create(OmegaConf.to_yaml(compared)))


def _places(kept: Any) -> list[str]:
    """Returns the flags that name the folders of configurations from which a run was made."""
    sources = kept.hydra.runtime.config_sources
    return [f"--config-dir={source.path}" for source in sources if source.provider == "command-line"]


def _overrides(kept: Any) -> list[str]:
    """Returns the overrides of a run, among which a flag would be none of odt_sim's."""
    if not isinstance(kept, ListConfig) or any(not isinstance(one, str) or one.startswith("-") for one in kept):
        raise ValueError("expected a list of overrides")
    return list(kept)


def _read(path: Path, take: Callable[[Any], list[str]]) -> list[str]:
    """Returns what is taken of a file that a run has kept.

    Raises:
        ConfigurationError: The file is damaged.
    """
    try:
        return take(OmegaConf.load(path))
    except DAMAGED as error:
        told = "; ".join(line.strip() for line in str(error).splitlines())
        raise ConfigurationError(
            f"{path}: damaged ({told}); give the run's overrides again, or start a new one"
        ) from error
