"""Optuna's study of a sweep: an SQLite file in the sweep's folder, which the sweeper and the trials share."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from odt_sim._support.system import package
from odt_sim.errors import ConfigurationError

SWEEPER = "hydra_plugins.odt_sim.OptunaSweeper"  # the `_target_` of `hydra/sweeper=optuna`
FILE, NAME = "study.db", "sweep"
PRUNED = "pruned"  # the trial's attribute with the round after which it was stopped
SAMPLERS = {"tpe": "TPESampler", "random": "RandomSampler"}
PRUNERS = {
    "none": "NopPruner",
    "median": "MedianPruner",
    "successive_halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
}


def check_optuna() -> None:
    """Check that Optuna is installed, and prevent it from printing a line for each trial.

    Raises:
        ConfigurationError: Optuna is missing.
    """
    optuna = package("optuna", "hydra/sweeper: needs optuna", "tuning")
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@contextmanager
def opened(folder: Path, **settings: Any) -> Iterator[Any]:
    """Open the study in a sweep's folder for the duration of a block, and create it if needed.

    Args:
        folder: The sweep's folder.
        settings: Arguments of `optuna.create_study`.

    Yields:
        The `optuna.Study`.
    """
    import optuna

    # Seconds to wait for SQLite's lock: trials of a parallel launcher write at the same time.
    options = {"connect_args": {"timeout": 60}}
    storage = optuna.storages.RDBStorage(f"sqlite:///{(folder / FILE).resolve()}", engine_kwargs=options)
    try:
        yield optuna.create_study(storage=storage, study_name=NAME, load_if_exists=True, **settings)
    finally:
        storage.remove_session()
        storage.engine.dispose()


def reopen_failed(folder: Path) -> None:
    """Reopen the failed trials of the study in a sweep's folder, to run them again.

    Call it before Optuna reads the trials, since it keeps those that have ended. Optuna has no function for it: a new
    trial would have another number, and so another folder and other draws.
    """
    with closing(sqlite3.connect(folder / FILE, timeout=60)) as database, database:
        database.execute("UPDATE trials SET state = 'RUNNING', datetime_complete = NULL WHERE state = 'FAIL'")


def sampler(name: str, seed: int) -> Any:
    """Return a sampler.

    Raises:
        ConfigurationError: The name is unknown.
    """
    import optuna

    return _named("sampler", name, SAMPLERS, optuna.samplers)(seed=seed)


def pruner(name: str, settings: Mapping[str, Any] | None) -> Any:
    """Return a pruner.

    Raises:
        ConfigurationError: The name is unknown, or a setting does not fit.
    """
    import optuna

    try:
        return _named("pruner", name, PRUNERS, optuna.pruners)(**(settings or {}))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"hydra.sweeper.pruner_settings: {error}") from error


def _named(setting: str, name: str, known: Mapping[str, str], module: Any) -> Any:
    if name not in known:
        raise ConfigurationError(f"hydra.sweeper.{setting}: expected one of {', '.join(known)}, found {name!r}")
    return getattr(module, known[name])
