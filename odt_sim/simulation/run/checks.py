"""Checks of a run before it starts: model, data, training plan and aggregator."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from odt_sim._support.checks import check_instance
from odt_sim.aggregators.base import Aggregator
from odt_sim.aggregators.mean import Mean
from odt_sim.attacks.base import Attack
from odt_sim.data.checks.model_checks import check_against
from odt_sim.data.devices.federated import FederatedData
from odt_sim.data.store.columns import Columns
from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.device.examples import check_ids, check_ranges, named_rows
from odt_sim.device.plan import TrainingPlan, own_learning_rate
from odt_sim.errors import ConfigurationError, DataError, ModelError, StrategyError
from odt_sim.metrics.tasks import model_metrics
from odt_sim.model.contract.manifest import CTC, LOSSES, REGRESSIONS
from odt_sim.model.contract.signatures import shape_text
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.records import DeviceRecord, RoundRecord, columns_of
from odt_sim.persistence.run_folder import document
from odt_sim.persistence.storage import Storage
from odt_sim.settings import Budget, Fleet, General
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.cohort import straggler_count
from odt_sim.simulation.run.evaluation import PREFIXES
from odt_sim.strategies.base import Strategy

CLASSIFICATIONS = set(LOSSES) - {*REGRESSIONS, "binary_crossentropy"}

ARGUMENTS: Mapping[str, tuple[type, str]] = {
    "model": (TrainableModel, "load it with TrainableModel.load(path)"),
    "data": (FederatedData, "distribute a data set over devices with odt_sim.data.federate"),
    "strategy": (Strategy, "pass an instance, such as FedAvg()"),
    "fleet": (Fleet, "pass an instance, such as Fleet(cohort=10)"),
    "plan": (TrainingPlan, "pass an instance, such as TrainingPlan(epochs=2)"),
    "aggregator": (Aggregator, "pass an instance, such as Mean()"),
    "attack": (Attack, "pass an instance, such as LabelPoisoning()"),
    "budget": (Budget, "pass an instance, such as Budget(steps=1000)"),
    "backend": (Executor, "pass an instance, such as ProcessesBackend() from odt_sim.simulation.executors.processes"),
}
"""The expected type of each argument of a simulation, and the advice for a value of another type."""


def checked_job(
    model: TrainableModel,
    data: FederatedData,
    strategy: Strategy,
    *,
    seed: int,
    storage: Storage,
    fleet: Fleet | None = None,
    plan: TrainingPlan | None = None,
    aggregator: Aggregator | None = None,
    attack: Attack | None = None,
    runtime: RuntimeChoice = LITERT,
) -> Job:
    """Return the job of a run, after checks that its parts fit; see `Simulation` for the arguments.

    Raises:
        ConfigurationError: An argument has the wrong type, or a number is out of range.
        DataError: The data does not fit the model.
        StrategyError: The model lacks something that the strategy needs, or strategy and aggregator are incompatible.
        SimulationError: The aggregator's own `check` failed.
    """
    fleet, plan, aggregator = fleet or Fleet(), plan or TrainingPlan(), aggregator or Mean()
    attack = attack or Attack()
    check_types(model=model, data=data, strategy=strategy, fleet=fleet, plan=plan, aggregator=aggregator, attack=attack)
    General(seed)
    fleet.check_size(data.devices)
    strategy.check(model)
    data = named_as(model, data)
    check_fit(model, data, plan)
    job = Job(model, data, strategy, plan, seed, storage, fleet, aggregator, runtime, attack=attack)
    check_rounds(job)
    check_aggregator(job)
    check_attack(job)
    return job


def check_types(**arguments: object) -> None:
    """Check the types of a simulation's arguments.

    Raises:
        ConfigurationError: An argument does not have its type in `ARGUMENTS`.
    """
    for name, value in arguments.items():
        kind, advice = ARGUMENTS[name]
        if isinstance(value, type) and kind in value.__mro__:
            advice = f"pass {value.__name__}()"
        check_instance(f"Simulation: {name}", kind, value, advice)


def named_as(model: TrainableModel, data: FederatedData) -> FederatedData:
    """Return data with its arrays in the order and under the names of a model's inputs and targets.

    Raises:
        DataError: The names or the number of arrays differ.
    """
    x = named_rows(data.x, tuple(model.inputs), f"data {data.name}: x")
    y = named_rows(data.y, tuple(model.targets), f"data {data.name}: y")
    if x is data.x and y is data.y:
        return data
    classes = data.classes
    if isinstance(classes, Mapping) and isinstance(data.y, Columns):
        by_name = dict(zip(model.targets, classes.values(), strict=True)) if data.y.positional else classes
        classes = (
            {name: by_name.get(name) for name in y.names} if isinstance(y, Columns) else next(iter(classes.values()))
        )
    return replace(data, x=x, y=y, classes=classes)


def check_fit(model: TrainableModel, data: FederatedData, plan: TrainingPlan) -> None:
    """Check that devices can train and evaluate a model on their data.

    Raises:
        ConfigurationError: The plan sets a learning rate that is fixed in the model.
        DataError: A shape, a dtype or a label does not fit, or a device has no training or no test example.
        ModelError: The model's loss is unknown or does not fit its output.
    """
    if model.loss is None and not model.returns_losses:
        raise ModelError(f"{model.where}: has no manifest, so its loss is unknown; set it: model.loss=...")
    for output in model.outputs:
        shape = model.answers[output.name].shape
        if output.loss in CLASSIFICATIONS and len(shape) < 2:
            raise ModelError(
                f"{model.where}: 'infer' returns {shape_text(shape)}; its loss {output.loss} expects one number per "
                "class; choose another loss, or return one per class"
            )
    if plan.learning_rate is not None and "learning_rate" not in model.capabilities:
        raise ConfigurationError(
            f"train.learning_rate: expected null, since the step size of {model.where} is fixed, found {plan.learning_rate}"
        )
    _check_decay(model, plan)
    own = model.scheduled or own_learning_rate(model)
    if "learning_rate" in model.capabilities and not (plan.learning_rate or own):
        raise ConfigurationError(
            f"train.learning_rate: expected a number above 0, since {model.where} names no learning rate, found null"
        )
    transcripts = {output.name: None for output in model.outputs if output.loss == CTC}  # which check_ranges checks
    classes = {**model.classes_by_target, **transcripts}
    check_against(data, model.inputs, model.targets, classes, model.ignored_classes)
    check_ids(model, data.x, f"data {data.name}: x")
    check_ranges(model, data.y, f"data {data.name}: y")
    for column, split in ((0, "training"), (2, "test")):
        empty = np.flatnonzero(data.offsets[:, column + 1] == data.offsets[:, column])
        if len(empty):
            raise DataError(
                f"data {data.name}: device {empty[0]} has no {split} example; use fewer devices or another partition"
            )


def _check_decay(model: TrainableModel, plan: TrainingPlan) -> None:
    """Check that a learning rate that decays per round is neither fixed in the file nor scheduled per step."""
    if plan.learning_rate_decay == 1 or (plan.learning_rate is not None and "learning_rate" in model.capabilities):
        return
    if model.scheduled or "learning_rate" not in model.capabilities:
        why = "follows a schedule; also set train.learning_rate" if model.scheduled else "is fixed"
        raise ConfigurationError(
            f"train.learning_rate_decay: expected 1, found {plan.learning_rate_decay}: the step size of {model.where} {why}"
        )


def check_metrics(job: Job) -> None:
    """Check that no metric of the user has the name of another column, and that the chosen metric is computed.

    Raises:
        ConfigurationError: A name is taken, or the chosen metric is unknown.
    """
    for own in job.own_metrics:
        taken = any(own.name in columns_of(record) for record in (RoundRecord, DeviceRecord))
        if taken or own.name.startswith(PREFIXES):
            raise ConfigurationError(f"metrics: {own.name} is already the name of a column; rename the function")
    known = replace(job, metric=None).metrics
    if job.metric is not None and job.metric not in known:
        raise ConfigurationError(f"run.metric: expected one of {', '.join(known)}, found {job.metric}")


def check_validates(data: FederatedData, setting: str, *, own_examples: bool = False) -> None:
    """Check that rounds have metrics on validation examples, because a setting decides by them.

    Args:
        data: The devices' examples.
        setting: The setting, for the error.
        own_examples: Whether devices have their own examples instead of `data`.

    Raises:
        ConfigurationError: No device has validation examples, or they arrive over time.
    """
    if data.arrival is not None:
        raise ConfigurationError(
            f"{setting}: uses metrics on validation examples, which runs with arrival do not have, since rounds on "
            "different examples are not comparable; leave out one of the two"
        )
    if not (own_examples or has_validation(data)):
        raise ConfigurationError(
            f"{setting}: uses validation examples, but no device has any; set split.validation above 0"
        )


def has_validation(data: FederatedData) -> bool:
    """Return whether a device has validation examples."""
    return bool(np.any(data.offsets[:, 2] > data.offsets[:, 1]))


def check_rounds(job: Job) -> None:
    """Check that stragglers can do part of their work and leave enough devices, and that a round updates the weights.

    Raises:
        ConfigurationError: Stragglers have one epoch or step, or a round drops so many that fewer than `fleet.min_devices`
            contribute; or no device ever updates its weights, since it accumulates gradients over more steps than a round
            has, after which optimizer slots are reset.
    """
    fleet, plan, data = job.fleet, job.plan, job.data
    if fleet.stragglers and plan.amount < 2:
        name = "epochs" if plan.steps is None else "steps"
        raise ConfigurationError(
            f"train.{name}: expected at least 2 with fleet.stragglers={fleet.stragglers}, found {plan.amount}; "
            f"a straggler does fewer {name} than planned"
        )
    on_time = _on_time(job)
    if on_time < fleet.min_devices:
        raise ConfigurationError(
            f"fleet.min_devices: expected at most {on_time}, since {job.cohort - on_time} of a round's {job.cohort} devices "
            f"are stragglers (fleet.stragglers), which the strategy {job.strategy.name} drops, found {fleet.min_devices}"
        )
    accumulated = int((job.model.manifest and job.model.manifest.optimizer.get("gradient_accumulation_steps")) or 0)
    most_steps = plan.steps_of(int((data.offsets[:, 1] - data.offsets[:, 0]).max()), job.model.batch_size)
    if most_steps < accumulated and not job.strategy.alone:
        raise ConfigurationError(
            f"train: expected at least {accumulated} steps in a round, over which {job.model.where} accumulates gradients, "
            f"found {most_steps}; set train.steps, more train.epochs, or fewer gradient_accumulation_steps"
        )


def _on_time(job: Job) -> int:
    """Return the number of devices in a round that are no stragglers, or send partial work."""
    waits = job.strategy.alone or job.strategy.partial_work
    return job.cohort - (0 if waits else straggler_count(job.cohort, job.fleet.stragglers))


def check_aggregator(job: Job) -> None:
    """Check that the strategy allows the aggregator, and that a round has enough updates for it.

    Raises:
        StrategyError: The strategy combines individual updates itself.
        ConfigurationError: A round has too few devices.
        SimulationError: The aggregator's check failed.
    """
    aggregator, strategy = job.effective_aggregator, job.strategy
    if type(aggregator) is Mean:
        return
    if strategy.keeps_updates:
        raise StrategyError(
            f"strategy {strategy.name}: combines updates itself and does not use aggregator {aggregator.name}; "
            "choose aggregator=mean or another strategy"
        )
    check_updates(job, _on_time(job))


def check_attack(job: Job) -> None:
    """Check that an attack has hostile devices, and that it applies to the model.

    Raises:
        ConfigurationError: No device is hostile, a hostile device is unseen, or the attack does not apply to the model.
    """
    if type(job.attack) is not Attack and not job.hostile:
        raise ConfigurationError(
            f"attack {job.attack.name}: expected hostile devices, found fleet.hostile=0; set it, such as fleet.hostile=4"
        )
    with job.attack_errors("in check", passes=ConfigurationError):
        job.attack.check(job.model)
    metrics = model_metrics(job.model)
    if type(job.attack).triggered is not Attack.triggered and "accuracy" not in metrics:
        raise ConfigurationError(
            f"attack {job.attack.name}: its success is the accuracy on triggered examples, but the model "
            f"{job.model.name} has {', '.join(metrics)}; leave triggered out, or choose a classifier with one output"
        )


def check_updates(job: Job, devices: int) -> None:
    """Check that the aggregator can combine a number of updates.

    Raises:
        ConfigurationError: There are too few updates.
        SimulationError: The aggregator's check failed.
    """
    with job.aggregator_errors(f"in check of {devices} updates", passes=ConfigurationError):
        job.effective_aggregator.check(devices)


def promised(job: Job, rounds: int) -> Mapping[str, Any] | None:
    """Return the aggregator's privacy promise for a run of `rounds`; None if it makes none.

    Raises:
        ConfigurationError: The aggregator lacks a setting.
        StrategyError: The aggregator promises privacy, and the strategy chooses its cohorts.
        SimulationError: The aggregator failed, or its promise is invalid.
    """
    aggregator, strategy = job.effective_aggregator, job.strategy
    with job.aggregator_errors("in privacy", passes=ConfigurationError):
        promise = aggregator.privacy(rounds, job.cohort, job.participants)
        if promise is not None:
            _check_promise(promise)
    if promise is not None and type(strategy).cohort is not Strategy.cohort:
        raise StrategyError(
            f"strategy {strategy.name}: chooses its cohorts, but aggregator {aggregator.name} guarantees privacy "
            "only for cohorts of fleet.cohort uniformly drawn devices; use the default cohort, or choose another aggregator"
        )
    return promise


def _check_promise(promise: Mapping[str, Any]) -> None:
    if not isinstance(promise, Mapping):
        raise TypeError(f"it returned {type(promise).__name__}, expected a mapping or None")
    for name, most in (("epsilon", math.inf), ("delta", 1.0)):
        value = promise.get(name)
        if not isinstance(value, int | float | np.floating) or not 0 <= value <= most:
            raise ValueError(f"{name!r} is {value!r}, expected a number from 0 to {most:g}")
    document(promise)  # fails now, not after all rounds, if the summary cannot contain it
