"""Going on with a run: by its folder alone, whose overrides are kept in it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from odt_sim.errors import ConfigurationError


def resumed(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of `odt-sim run`, after those of the run that `run.resume` names, where it names one.

    Raises:
        ConfigurationError: The folder holds no run, or a sweep is to be resumed.
    """
    named = [argument.removeprefix("run.resume=") for argument in arguments if argument.startswith("run.resume=")]
    folder = named[-1].strip("'\"") if named else "null"
    if folder in ("", "null"):
        return list(arguments)
    if {"-m", "--multirun"} & set(arguments):
        raise ConfigurationError("run.resume: goes on with a single run, such as one job of a sweep; leave -m out")
    kept = Path(folder) / ".hydra"
    if not (kept / "overrides.yaml").is_file():
        raise ConfigurationError(f"run.resume: {folder} is no folder of a run; give one that odt-sim run has made")
    places = _read(kept / "hydra.yaml", _places)
    overrides = _read(kept / "overrides.yaml", _overrides)
    given = any(argument.startswith(("--config-dir", "-cd")) for argument in arguments)
    return [*([] if given else places), *overrides, *arguments, "hydra.mode=RUN"]


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
    except (OSError, YAMLError, OmegaConfBaseException, ValueError, TypeError, AttributeError, RecursionError) as error:
        told = "; ".join(line.strip() for line in str(error).splitlines())
        raise ConfigurationError(
            f"{path}: damaged ({told}); give the run's overrides again, or start a new one"
        ) from error
