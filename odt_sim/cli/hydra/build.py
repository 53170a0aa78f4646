"""Build the objects of a run from its configuration."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra.utils
from omegaconf import DictConfig, ListConfig, OmegaConf

from odt_sim._support.system import in_daemon_thread
from odt_sim._support.user_code import add_working_folder, imported, user_code_errors
from odt_sim.cli.hydra.components import build, plain
from odt_sim.cli.hydra.keys import NO_PATH, check_keys
from odt_sim.cli.hydra.overrides import key_and_value
from odt_sim.cli.hydra.saved_config import is_saved, named_start, saved_config
from odt_sim.cli.hydra.settings import DECLARED
from odt_sim.cli.messages import warn
from odt_sim.data.devices.federated import FederatedData, described, federate
from odt_sim.declarations import check_values
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.export.cache import exported, with_needs
from odt_sim.metrics.names import higher_is_better, is_metric
from odt_sim.metrics.own import own_metrics
from odt_sim.metrics.tasks import model_metrics
from odt_sim.model.trainable import TrainableModel
from odt_sim.observers.base import Observer
from odt_sim.persistence.run_folder import INITIAL_MODEL, RunFolder
from odt_sim.persistence.storage import is_uri
from odt_sim.settings import Budget, ConfiguredFleet, ExportedModel, General, ModelFile
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.simulation.run.callbacks import Function
from odt_sim.simulation.run.checks import check_fit, named_as
from odt_sim.simulation.run.coordinator import Simulation
from odt_sim.strategies.base import Strategy


def simulation(
    config: DictConfig,
    directory: Path,
    before: Path | None = None,
    on_warning: Callable[[str], object] = warn,
) -> Simulation:
    """Return the simulation that a configuration describes.

    The model is exported in a subprocess while the backend starts.

    Args:
        config: The whole configuration, checked.
        directory: The run's folder.
        before: The exported model file with which a resumed run or its sweep began, used if the export differs now.
        on_warning: Called with a line if it differs.

    Raises:
        OdtSimError: The configuration, the model or the data does not fit.
    """
    parts = {group: build(config[group], group) for group in ("strategy", "aggregator", "backend")}
    strategy: Strategy = parts["strategy"]
    parts |= {"metrics": _metrics(config), "callbacks": _callbacks(config)}
    model_begun = in_daemon_thread(lambda: model(config, strategy=strategy))
    data = _checked_data(config)  # before the export ends, so that its errors come early
    parts["backend"].start()
    found = model_begun.result()
    if before:
        own = model(config, before)
        if own.fingerprint != found.fingerprint and not strategy.needed(own) - own.capabilities:
            on_warning(
                f"model {found.name}: this odt_sim or TensorFlow, or changed code of the model, exports another file; the "
                f"run uses the one with which it began, {os.path.relpath(before)}"
            )
            found = own
    return _simulation(config, directory, found, data, **parts)


def saved_simulation(folder: Path, overrides: Sequence[str] = ()) -> Simulation:
    """Return the simulation of a complete run of `odt-sim run`, for example to deploy its devices.

    Args:
        folder: The run's folder, which contains its initial model.
        overrides: The current location of its data, such as `data.path=moved.npz`; other data is refused.

    Raises:
        OdtSimError: The folder contains no such run, the run is not complete, or its data or user code is missing.
    """
    config = saved_config(folder)
    for override in overrides:
        key, value = key_and_value(override)
        if not key.startswith("data."):
            raise ConfigurationError(f"{override}: expected a setting of the run's data, such as data.path=...")
        OmegaConf.update(config, key, value)
    check(config)
    if RunFolder(folder).summary() is None:
        raise CheckpointError(f"{folder}: the run is not complete; resume it with run.resume={folder}, or run it again")
    add_working_folder()
    started_with = model(config, folder / INITIAL_MODEL)
    backend = SerialBackend(config.backend.get("runtime", "litert"), config.backend.get("runtime_python"))
    with named_start(folder):
        parts = {group: build(config[group], group) for group in ("strategy", "aggregator")}
        data, metrics = federated(config), _metrics(config)
    return _simulation(config, folder, started_with, data, backend=backend, metrics=metrics, **parts)


def saved_model(folder: Path, path: Path) -> TrainableModel:
    """Return the model in a file of a run, with the run's model settings; a run from Python has none.

    Args:
        folder: The run's folder.
        path: The model file.

    Raises:
        OdtSimError: The settings are damaged, or the file is not a trainable model.
    """
    return model(saved_config(folder), path) if is_saved(folder) else TrainableModel.load(path)


def _simulation(
    config: DictConfig, directory: Path, model: TrainableModel, data: FederatedData, **parts: Any
) -> Simulation:
    """Return the simulation of a configuration with these built parts, such as `strategy`."""
    return Simulation(
        model,
        data,
        rounds=config.run.rounds,
        directory=directory,
        fleet=_fleet(config),
        plan=TrainingPlan(**config.train),
        evaluate_every=config.run.evaluate_every,
        target=config.run.target,
        seed=config.seed,
        storage=_storage(config.run.storage),
        attack=build(config.attack, "attack"),
        metric=config.run.metric,
        budget=Budget(**(config.run.budget or {})),
        **parts,
    )


def _plain_list(listed: Any) -> Any:
    return OmegaConf.to_container(listed, resolve=True) if isinstance(listed, ListConfig) else listed


def _fleet(config: DictConfig) -> ConfiguredFleet:
    return ConfiguredFleet(**plain(config.fleet, "fleet"))


def _metrics(config: DictConfig) -> list[Callable[..., float | None]]:
    """Return the functions that `metrics` names.

    Raises:
        ConfigurationError: An entry is no name, or cannot be imported.
    """
    paths = config.metrics or ()
    for path in paths:
        if not isinstance(path, str):
            raise ConfigurationError(f"metrics: expected names of functions, such as mine.f1, found {path}")
    return [imported(path, "metrics") for path in paths]


def compares_upwards(config: DictConfig) -> bool:
    """Return whether larger values are better for the metric by which a configuration's runs compare.

    Raises:
        ConfigurationError: `run.metric` is not a metric.
        OdtSimError: The configured model cannot be exported or read.
    """
    add_working_folder()
    own_metrics(_metrics(config))
    metric = config.run.metric or model_metrics(model(config))[0]
    if not is_metric(metric):
        raise ConfigurationError(f"run.metric: expected a metric of the model or a name from metrics, found {metric}")
    return higher_is_better(metric)


def _callbacks(config: DictConfig) -> list[Function | Observer]:
    """Return the functions and observers in `callbacks`."""
    return [_callback(item) for item in config.callbacks or ()]


def _callback(item: Any) -> Any:
    if isinstance(item, DictConfig):
        return build(item, "callbacks")
    found = imported(str(item), "callbacks")
    return build(OmegaConf.create({"_target_": item}), "callbacks") if isinstance(found, type) else found


def _storage(place: str | None) -> str | None:
    """Return `run.storage` relative to the folder in which the command started."""
    return place if place is None or is_uri(place) else hydra.utils.to_absolute_path(os.path.expanduser(place))


def model(config: DictConfig, path: Path | None = None, strategy: Strategy | None = None) -> TrainableModel:
    """Return the configured model: a `.tflite` file, or a Keras model, which is exported unless it is in the cache.

    Args:
        config: The whole configuration.
        path: A copy of the file, instead of the configured or exported file.
        strategy: A strategy; a Keras model is exported with all capabilities that it needs.

    Raises:
        ModelError: The file is not a trainable model.
        ExportError: The Keras model cannot be exported.
    """
    if "build" in config.model:
        return TrainableModel.load(path) if path else _exported_for(strategy, model_spec(config))
    settings = plain(config.model, "model")
    flex = config.backend.get("runtime") == "flex"
    if path:  # its manifest already contains the corrections
        settings = {**settings, "signatures": None, "groups": None}
    return TrainableModel.load(
        path or settings["path"],
        loss=settings["loss"],
        from_logits=settings["from_logits"],
        signatures=settings["signatures"],
        groups=settings["groups"],
        flex=flex,
    )


def _exported_for(strategy: Strategy | None, spec: Mapping[str, Any]) -> TrainableModel:
    """Return an exported model; a strategy's needs depend on the model, so some models are exported twice."""
    found = TrainableModel.load(exported(spec))
    if strategy is None or not (missing := strategy.wanted(found) - found.capabilities):
        return found
    extended = with_needs(spec, missing)
    return found if extended == spec else TrainableModel.load(exported(extended))


def model_file(config: DictConfig) -> Path:
    """Return the file of a Keras model, which is exported unless it is in the cache.

    Raises:
        ExportError: The Keras model cannot be exported.
    """
    return exported(model_spec(config))


def model_spec(config: DictConfig) -> dict[str, Any]:
    """Return the specification of the configured export, see `odt_sim.export.cache.exported`."""
    spec = plain(config.model, "model")
    rates, optimizer = spec.pop("default_rates", None) or {}, spec["optimizer"]
    if optimizer is not None:
        known = optimizer.get("name") in rates
        given = {key: value for key, value in optimizer.items() if key != "learning_rate" or value is not None}
        spec["optimizer"] = {**({"learning_rate": rates[optimizer["name"]]} if known else {}), **given}
    if not str(spec["build"]["_target_"]).startswith("odt_sim."):  # a user's module in the working folder
        spec["sys_path"] = [*(spec.get("sys_path") or []), os.getcwd()]
    return spec


def federated(config: DictConfig) -> FederatedData:
    """Return the configured data, partitioned over the fleet's devices, with its drift and its order of arrival.

    Raises:
        DataError: The data cannot be read, or cannot be partitioned over so many devices.
        ConfigurationError: The partition, the drift or the arrival fails, or does not accept a setting.
    """
    dataset, partition = (build(config[group], group) for group in ("data", "partition"))
    split = config.split
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
    return _changed(_changed(data, config, "drift"), config, "arrival")


def _checked_data(config: DictConfig) -> FederatedData:
    """Return the configured data, after a check that the fleet fits its number of devices."""
    data = federated(config)
    _fleet(config).check_size(data.devices)
    return data


def check_data(config: DictConfig, model: TrainableModel, rate: float | None) -> None:
    """Check that the configured data can be read and fits the fleet and a model.

    Args:
        config: The whole configuration.
        model: The model.
        rate: A learning rate for models whose learning rate can be set.

    Raises:
        OdtSimError: The data cannot be read or does not fit.
    """
    data = _checked_data(config)
    plan = TrainingPlan(learning_rate=rate if "learning_rate" in model.capabilities else None)
    check_fit(model, named_as(model, data), plan)


def _changed(data: FederatedData, config: DictConfig, group: str) -> FederatedData:
    """Return the data as changed by a group's function of data and seed, with the function's name in `spread`."""
    function = build(config[group], group)
    with user_code_errors(function, f"{group}: failed", ConfigurationError):
        changed = function(data, config.seed)
    if not isinstance(changed, FederatedData):
        raise ConfigurationError(
            f"{group} {described(function)}: returned {type(changed).__name__}, expected FederatedData; correct it"
        )
    recorded = changed is data or changed.spread != data.spread
    return changed if recorded else replace(changed, spread=f"{data.spread} {group}={described(function)}")


def check(config: DictConfig) -> None:
    """Check the declared settings and the model's, and refuse unknown keys; `build` checks components.

    Raises:
        ConfigurationError: A value does not fit, or a key is unknown.
    """
    check_keys(config)
    General(config.seed, *(_plain_list(config[key]) for key in ("metrics", "callbacks")))
    for kind in DECLARED:
        if kind.group:
            kind(**plain(config[kind.group], kind.group))
    model = plain(config.model, "model")
    check_values(ExportedModel if "build" in model else ModelFile, model)
    if "build" in model and model.get("path") not in (None, *model["build"].values()):
        raise ConfigurationError(NO_PATH)
    for key, name in (("build", "_target_"), ("optimizer", "name")):
        if not isinstance(found := (model.get(key) or {}).get(name, ""), str):
            raise ConfigurationError(f"model.{key}.{name}: expected text, found {found}")
    given, own = config.train.learning_rate, (model.get("optimizer") or {}).get("learning_rate")
    if given is not None and isinstance(own, int | float) and given != own:  # overriding a schedule is allowed
        raise ConfigurationError(
            f"train.learning_rate: expected null or model.optimizer.learning_rate, {own}, found {given}; keep one of "
            "the two, such as with model.optimizer.learning_rate=null"
        )
