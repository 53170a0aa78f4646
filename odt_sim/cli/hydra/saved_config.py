"""The configuration that a run saves in `.hydra` in its folder."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml  # type: ignore[import-untyped]
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import odt_sim
from odt_sim._support.files import remove_temporaries, write_file
from odt_sim.cli.hydra.settings import COMPONENTS, default_settings, defaults
from odt_sim.errors import CheckpointError, ConfigurationError, DataError, ExportError, OdtSimError
from odt_sim.persistence.run_folder import SWEEP, RunFolder, config_folders

FILES = CONFIG, HYDRA, OVERRIDES = "config.yaml", "hydra.yaml", "overrides.yaml"

IRRELEVANT = ("hydra", "backend", "tracker")
"""Groups that do not affect results."""

Saved = TypeVar("Saved")

DAMAGED = (OSError, yaml.YAMLError, OmegaConfBaseException, ValueError, TypeError, AttributeError, RecursionError)
"""The exceptions that reading a damaged configuration may raise."""


def claim(folder: Path, config: DictConfig, overrides: Sequence[str]) -> bool:
    """Save the configuration of a new run in its folder; Hydra itself would overwrite an earlier run's configuration.

    Args:
        folder: The run's folder.
        config: The configuration.
        overrides: The overrides that turn the shipped configuration into this one.

    Returns:
        Whether the run is new; False if it is resumed.

    Raises:
        CheckpointError: The folder contains an earlier run.
        FileError: The folder cannot be written.
    """
    if config.run.resume is not None:
        return False
    if RunFolder(folder).holds_results():
        raise CheckpointError(
            f"{folder}: already contains a run; resume it with run.resume={folder}, or choose another folder"
        )
    _save(folder, config, overrides)
    return True


def save_changes(folder: Path, config: DictConfig, overrides: Sequence[str]) -> None:
    """Save a command's changes to an earlier run, so that the folder alone is enough to resume it.

    Args:
        folder: The run's folder.
        config: The configuration.
        overrides: The overrides of the run, followed by those of this command.

    Raises:
        FileError: The folder cannot be written.
    """
    wanted = list(dict.fromkeys(reversed(overrides)))[::-1]  # keep the last of equal overrides
    if wanted != saved_overrides(folder):
        fresh = config.copy()
        fresh.run.resume = None
        _save(folder, fresh, wanted)


def saved_config(folder: Path) -> DictConfig:
    """Return the configuration that is saved in a run's folder, with defaults for settings that its odt_sim lacked.

    Raises:
        ConfigurationError: The configuration is missing or damaged.
    """
    if not (folder / ".hydra" / CONFIG).is_file():
        raise ConfigurationError(
            f"{folder}: contains no .hydra/{CONFIG}, since the run was started from Python; create the same "
            "Simulation there: simulation.deployed([ID]) returns devices with their models, "
            "list(odt_sim.deploy.write.deploy(simulation, "
            "Path('phones'), [ID])) writes the files"
        )
    return _read(folder / ".hydra" / CONFIG, lambda saved: _completed(_config(saved)))


def saved_tracker(folder: Path) -> DictConfig | None:
    """Return the tracker's settings in the saved configuration of a run; None without any.

    Raises:
        ConfigurationError: The file is damaged.
    """
    return _read(folder / ".hydra" / CONFIG, lambda saved: cast(DictConfig | None, _config(saved).get("tracker")))


def saved_overrides(folder: Path) -> list[str]:
    """Return the saved overrides of a run.

    Raises:
        ConfigurationError: The file is damaged.
    """
    return _read(folder / ".hydra" / OVERRIDES, _overrides)


def saved_config_dirs(folder: Path) -> list[str]:
    """Return the arguments that name the configuration folders of a run.

    Raises:
        ConfigurationError: The file is damaged.
    """
    return _read(folder / ".hydra" / HYDRA, lambda saved: list(config_folders(saved.hydra)))


@contextmanager
def named_start(folder: Path | None) -> Iterator[None]:
    """Add the folder in which a run or sweep was started to errors of its data and code, if the command runs elsewhere.

    Args:
        folder: The folder of the run or the sweep; None for a new one.
    """
    try:
        yield
    except OdtSimError as error:
        of_files = isinstance(error, DataError | ExportError) or isinstance(error.__cause__, ImportError)
        started = _working_folder(folder) if folder and of_files else None
        if started and started != Path.cwd():
            moved = ", or say where the data is: data.path=..." if isinstance(error, DataError) else ""
            error.args = (
                f"{error}; its paths are relative to {started}, where the run was started; run the command "
                f"there{moved}",
            )
        raise


def _working_folder(folder: Path) -> Path | None:
    path = folder / SWEEP if is_sweep(folder) else folder / ".hydra" / HYDRA
    try:
        return Path(OmegaConf.load(path).hydra.runtime.cwd)
    except DAMAGED:
        return None


def is_saved(folder: Path) -> bool:
    """Return whether a folder contains the configuration of a run."""
    return (folder / ".hydra" / OVERRIDES).is_file()


def is_saved_as(folder: Path, config: DictConfig, *ignored: str) -> bool:
    """Return whether the run in a folder has the same configuration, except for `run.resume`, `IRRELEVANT` and given keys."""
    path = folder / ".hydra" / CONFIG
    try:
        return bool(_saved(path, path.stat().st_mtime_ns, ignored) == _comparable(config, *ignored))
    except DAMAGED:
        return False


@cache
def _saved(path: Path, _changed: int, ignored: tuple[str, ...]) -> Any:
    return _comparable(_config(OmegaConf.load(path)), *ignored)


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is a sweep's folder."""
    return (folder / SWEEP).is_file()


def check_new_sweep(folder: Path) -> None:
    """Check that the folder of a new sweep contains no results, since the new sweep overwrites the file `SWEEP`.

    Raises:
        CheckpointError: The folder contains a run, or a sweep with results.
    """
    if RunFolder(folder).holds_results():
        raise CheckpointError(f"{folder}: already contains a run; choose another folder, hydra.sweep.dir=...")
    if is_sweep(folder) and any(RunFolder(path.parent).holds_results() for path in folder.glob("*/.hydra")):
        raise CheckpointError(
            f"{folder}: already contains a sweep; resume it with run.resume={folder}, or choose another folder"
        )


def saved_sweep(folder: Path) -> tuple[list[str], list[str]]:
    """Return the flags and the overrides with which a sweep was started.

    Raises:
        ConfigurationError: The file is damaged.
    """
    config_dirs = _read(folder / SWEEP, lambda saved: list(config_folders(saved.hydra)))
    kinds = ("hydra", "task")
    overrides = _read(
        folder / SWEEP, lambda saved: [text for kind in kinds for text in _overrides(saved.hydra.overrides[kind])]
    )
    return config_dirs, [each for each in overrides if each not in config_dirs]


def same_model(folder: Path, config: DictConfig) -> bool:
    """Return whether the run in a folder has an exported model with the same settings, for the same strategy's needs."""
    try:
        saved = _config(OmegaConf.load(folder / ".hydra" / CONFIG))
        before, now = (OmegaConf.to_container(each.model, resolve=True) for each in (saved, config))
        target, wanted = (_current_name(str(each.strategy._target_)) for each in (saved, config))
    except DAMAGED:
        return False
    if not isinstance(before, dict) or not isinstance(now, dict) or "build" not in before:
        return False
    return (now, wanted) == (before, target)


def _save(folder: Path, config: DictConfig, overrides: Sequence[str]) -> None:
    (folder / ".hydra").mkdir(exist_ok=True)
    remove_temporaries(folder / ".hydra", FILES)
    for name, content in zip(FILES, (config, HydraConfig.instance().cfg, list(overrides)), strict=True):
        write_file(folder / ".hydra" / name, OmegaConf.to_yaml(content).encode())


def _comparable(config: DictConfig, *ignored: str) -> Any:
    """Return the configuration as if read from a file, without irrelevant groups, `run.resume` and ignored keys."""
    compared = _completed(OmegaConf.masked_copy(config, [str(key) for key in config if key not in IRRELEVANT]))
    for key in ("run.resume", *ignored):
        OmegaConf.update(compared, key, None, force_add=True)
    return OmegaConf.to_container(OmegaConf.create(OmegaConf.to_yaml(compared)))


def _completed(config: DictConfig) -> DictConfig:
    """Return the configuration with defaults for what an earlier version lacked, and with current names of targets."""
    missing = (group for group in COMPONENTS if group not in (*IRRELEVANT, *config))
    options = {group: default_settings(group) for group in missing}
    completed = cast(DictConfig, OmegaConf.merge(OmegaConf.create(defaults() | options), config))
    for settings in completed.values():
        if isinstance(settings, DictConfig) and "_target_" in settings:
            settings._target_ = _current_name(str(settings._target_))
    return completed


def _current_name(target: str) -> str:
    """Return the name of a target whose module has moved into a folder, such as `odt_sim.strategies.ditto.Ditto`.

    It is the public name in the part of the package, which shipped options use, if there is one.
    """
    owner, _, name = target.rpartition(".")
    package, _, module = owner.rpartition(".")
    root = Path(odt_sim.__file__).parent
    folder = root / package.removeprefix("odt_sim.")
    if not re.fullmatch(r"odt_sim\.\w+", package) or not folder.is_dir() or (folder / f"{module}.py").is_file():
        return target
    if hasattr(import_module(package), name):
        return f"{package}.{name}"
    moved = [path.relative_to(root).with_suffix("").parts for path in folder.rglob(f"{module}.py")]
    return ".".join(("odt_sim", *moved[0], name)) if moved else target


def _config(saved: Any) -> DictConfig:
    if not isinstance(saved, DictConfig):
        raise ValueError("expected a configuration")
    return saved


def _overrides(saved: Any) -> list[str]:
    if not isinstance(saved, ListConfig) or any(not isinstance(item, str) or item.startswith("-") for item in saved):
        raise ValueError("expected a list of overrides")
    return list(saved)


def _read(path: Path, take: Callable[[Any], Saved]) -> Saved:
    try:
        return take(OmegaConf.load(path))
    except DAMAGED as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines())
        raise ConfigurationError(
            f"{path}: damaged ({reason}); give the run's overrides again, or start a new run"
        ) from error
