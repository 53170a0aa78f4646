"""Going on with a run: by its folder alone, whose overrides are kept in it."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

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
    sources = OmegaConf.load(kept / "hydra.yaml").hydra.runtime.config_sources
    places = [f"--config-dir={source.path}" for source in sources if source.provider == "command-line"]
    overrides = [str(override) for override in OmegaConf.load(kept / "overrides.yaml")]
    given = any(argument.startswith(("--config-dir", "-cd")) for argument in arguments)
    return [*([] if given else places), *overrides, *arguments, "hydra.mode=RUN"]
