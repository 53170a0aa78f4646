"""From a configuration to the objects of a run."""

import functools
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from odt_sim.aggregators.base import Aggregator
from odt_sim.cli import interrupt
from odt_sim.cli.overrides import check_added
from odt_sim.cli.settings import DECLARED
from odt_sim.data.federated import FederatedData, described, federate
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import ConfigurationError, OdtSimError
from odt_sim.export.cache import OPTIONS, SETTINGS, exported
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.storage import is_uri
from odt_sim.settings import ConfiguredFleet, expected, fits
from odt_sim.simulation.backend import Backend
from odt_sim.simulation.coordinator import Simulation
from odt_sim.strategies.base import Strategy
from odt_sim.user_code import user_code_errors

Result = TypeVar("Result")

OF_FILES = ("sys_path", "path", "from_logits")
"""Of a model, beside what its export takes."""


def simulation(config: DictConfig, directory: Path) -> Simulation:
    """Builds the simulation that a configuration describes.

    The model is exported in a process of its own while the backend starts.

    Args:
        config: A configuration of the form of `conf/config.yaml`, checked.
        directory: The run's folder.

    Raises:
        OdtSimError: Something in the configuration, the model or the data does not fit.
    """
    strategy: Strategy = build(config.strategy, "strategy")
    aggregator: Aggregator = build(config.aggregator, "aggregator")
    backend: Backend = build(config.backend, "backend")
    wait_for_model = _beside(lambda: model(config))
    data = federated(config)
    interrupt.check()  # the imports that all of this may begin with can lose one
    backend.start()
    interrupt.check()
    trained = wait_for_model()
    return Simulation(
        trained,
        data,
        strategy,
        rounds=config.run.rounds,
        directory=directory,
        fleet=ConfiguredFleet(**config.fleet),
        plan=TrainingPlan(**config.train),
        evaluate_every=config.run.evaluate_every,
        target=config.run.target,
        seed=config.seed,
        storage=_storage(config.run.storage),
        backend=backend,
        aggregator=aggregator,
    )


def _storage(place: str | None) -> str | None:
    """Returns `run.storage` as it is seen from the folder of the start, which Hydra may have changed."""
    return place if place is None or is_uri(place) else hydra.utils.to_absolute_path(os.path.expanduser(place))


def _beside(work: Callable[[], Result]) -> Callable[[], Result]:
    """Starts work in a thread that an interrupted process does not wait for; returns what gives its result."""
    future = Future[Result]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result


def model(config: DictConfig) -> TrainableModel:
    """Returns the configured model: a file that exists, or one exported now or earlier from a Keras model.

    Raises:
        ModelError: The file is no trainable model.
        ExportError: The Keras model cannot be exported.
    """
    if "build" not in config.model:
        path = _value(config.model, "path", "model")
        return TrainableModel.load(path, loss=config.model.loss, from_logits=config.model.from_logits)
    return TrainableModel.load(model_file(config))


def model_file(config: DictConfig) -> Path:
    """Returns the file of a model that is exported from Keras, now or earlier.

    Raises:
        ExportError: The Keras model cannot be exported.
    """
    spec = _plain(config.model, "model")
    if not str(spec["build"]["_target_"]).startswith(
        "odt_sim."
    ):  # the user's own function, maybe in the working folder
        spec["sys_path"] = [*spec.get("sys_path", []), os.getcwd()]
    return exported(spec)


def federated(config: DictConfig) -> FederatedData:
    """Returns the configured data, spread over the fleet's devices, with its drift.

    Raises:
        DataError: The data cannot be read, or cannot be spread over so many devices.
        ConfigurationError: The partition does not take a setting, or fails.
    """
    dataset = build(config.data, "data")
    partition, drift = build(config.partition, "partition"), build(config.drift, "drift")
    _check_numbers(partition, "partition")
    _check_numbers(drift, "drift")
    split = config.split
    with user_code_errors(partition, "partition: failed", ConfigurationError):
        data = federate(
            dataset,
            partition,
            config.fleet.devices,
            config.seed,
            validation=float(split.validation),
            test=float(split.test),
            method=split.method,
            gap=split.gap,
        )
    with user_code_errors(drift, "drift: failed", ConfigurationError):
        changed: FederatedData = drift(data, config.seed)
    told = changed is data or changed.spread != data.spread
    return changed if told else replace(changed, spread=f"{data.spread} drift={described(drift)}")


def _check_numbers(built: Any, name: str) -> None:
    """Checks the settings of a function that is called later, where its signature says that they are numbers.

    Raises:
        ConfigurationError: A value is of another type.
    """
    if not isinstance(built, functools.partial):
        return
    for key, value in built.keywords.items():
        kind = getattr(built.func, "__annotations__", {}).get(key)
        if (kind is int or kind is float) and not fits(value, kind):
            raise ConfigurationError(f"{name}.{key}: expected {expected(kind)}, found {value!r}")


def check(config: DictConfig) -> None:
    """Check the declared settings, and refuse unknown keys.

    Raises:
        ConfigurationError: A value is missing or does not fit, or a key is unknown.
    """
    model = {f"model.{name}" for name in (*SETTINGS, *OPTIONS, *OF_FILES)}
    keys = [key for kind in DECLARED for key in kind.all_keys()]
    for key in keys:
        group, _, name = key.rpartition(".")
        holder = OmegaConf.select(config, group) if group else config
        if isinstance(holder, DictConfig) and name not in holder:
            raise ConfigurationError(f"{key}: expected in the configuration, found nothing; add it: +{key}=...")
    check_added(config, {*keys, *model})
    for kind in DECLARED:
        kind(**(config[kind.group] if kind.group else {"seed": config.seed}))


def build(node: DictConfig, name: str) -> Any:
    """Makes the object that a node's `_target_` names: the one place that calls Hydra's `instantiate`.

    Args:
        node: The configuration's node.
        name: Its key, for the error.

    Raises:
        ConfigurationError: The target cannot be found, or does not take these keys.
        OdtSimError: What the target itself raised.
    """
    _plain(node, name)
    try:
        return hydra.utils.instantiate(node)
    except InstantiationException as error:
        cause = error.__cause__
        while cause is not None and not isinstance(cause, OdtSimError):
            cause = cause.__cause__
        if cause is not None:
            raise cause from error
        cause = error.__cause__ or error
        raise ConfigurationError(f"{name}: {type(cause).__name__}: {' '.join(str(cause).split())}") from error


def add_working_folder() -> None:
    """Lets strategies, models and data functions of the user's be found in the working folder."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _plain(node: DictConfig, name: str) -> dict[str, Any]:
    if not isinstance(node, DictConfig):
        raise ConfigurationError(f"{name}: expected a group of settings, found {node!r}; choose one: {name}=...")
    try:
        plain = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigurationError(
            f"{name}: {str(error).splitlines()[0]}; set it: {error.full_key or name}=..."
        ) from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _value(node: DictConfig, key: str, name: str) -> Any:
    return _plain(node, name)[key]
