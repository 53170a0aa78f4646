"""The work of one block of devices, the same on every backend."""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.federated import FederatedData
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.runtime import RuntimePool
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.simulation.cohort import Fleet
from odt_sim.simulation.evaluation import Evaluation, Row
from odt_sim.simulation.failure import blamed, check_tensors
from odt_sim.simulation.store import DeviceStore
from odt_sim.strategies.base import Strategy, Tensors, Update, Updates, array_of

Result = TypeVar("Result")


@dataclass(frozen=True)
class Job:
    """What stays the same for a whole run, and every worker needs.

    Attributes:
        model: The model that all devices train.
        data: The devices' examples.
        strategy: What devices do.
        plan: How they train.
        seed: The run's seed, at least 0.
        storage: Where devices' states are kept.
        fleet: Who takes part, and how unseen devices adapt.
    """

    model: TrainableModel
    data: FederatedData
    strategy: Strategy
    plan: TrainingPlan
    seed: int
    storage: Path
    fleet: Fleet


@dataclass(frozen=True)
class Task:
    """One block's work.

    Attributes:
        kind: `train`; `evaluate` what is deployed; `final`, which measures all that is reported.
        round: The round to train, or whose outcome to evaluate.
        devices: The devices' ids, ascending.
        versions: For each device the round in which its state was last committed; 0 for none.
        stragglers: The ids of those devices that do a part of their work only.
    """

    kind: Literal["train", "evaluate", "final"]
    round: int
    devices: tuple[int, ...]
    versions: tuple[int, ...]
    stragglers: Set[int] = frozenset()

    def each(self) -> "list[Task]":
        """Returns a task for each device."""
        pairs = zip(self.devices, self.versions, strict=True)
        return [
            Task(self.kind, self.round, (device,), (version,), self.stragglers & {device}) for device, version in pairs
        ]


@dataclass(frozen=True)
class Trained:
    """What a device, a block or a round did in training; empty as it stands.

    Attributes:
        sums: For each tensor of the updates the sum of `weight * tensor`, float64, in the order of the devices.
        layouts: For each tensor what its numbers are; None for a plain array.
        weight: The sum of the weights.
        contributed: The ids of the devices whose updates are in the sums.
        excluded: The ids of those left out since a loss or a value was not finite.
        stateful: The ids of those that wrote a state.
        loss_sum: The sum of `weight * mean loss of the device's steps`.
        loss_weight: The sum of the weights of the devices that made a step.
        bytes_up: What the devices that contributed sent.
        train_calls: The steps that all of them made, those left out too.
        infer_calls: The batches of inference that all of them made.
        each: The single updates, where the strategy asks for them.
    """

    sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    layouts: dict[str, Layout | None] = field(default_factory=dict)
    weight: float = 0.0
    contributed: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    stateful: tuple[int, ...] = ()
    loss_sum: float = 0.0
    loss_weight: float = 0.0
    bytes_up: int = 0
    train_calls: int = 0
    infer_calls: int = 0
    each: dict[int, Update] = field(default_factory=dict)


class Worker:
    """Does blocks of a job, one device after the other, in interpreters that they share."""

    def __init__(self, job: Job) -> None:
        """Starts no interpreter yet."""
        self._job = job
        self._pool = RuntimePool(job.model)
        self._store = DeviceStore(job.storage, job.model)
        self._evaluation = Evaluation(job.data, job.strategy, job.fleet, job.seed)

    def train(self, task: Task, broadcast: Tensors) -> Trained:
        """Trains the devices of a block and returns their sum.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        return join(self._on_each(task, lambda device: self._train(device, task, broadcast)))

    def evaluate(self, task: Task, broadcast: Tensors) -> list[Row]:
        """Evaluates what each device of a block would deploy; keeps nothing.

        Returns:
            A row a device, as `Evaluation.row` makes it.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        final = task.kind == "final"
        return list(self._on_each(task, lambda device: self._evaluation.row(device, broadcast, final=final)))

    def _on_each(self, task: Task, work: Callable[[Device], Result]) -> Iterator[Result]:
        for id, version in zip(task.devices, task.versions, strict=True):
            device = self._device(id, task.round)
            device.state = self._store.load(id, version)
            try:
                yield work(device)
            finally:
                device.release()

    def _device(self, id: int, round: int) -> Device:
        job, data = self._job, self._job.data
        train, validation = (Examples(data.x, data.y, split(id)) for split in (data.train, data.validation))
        plan, pool = job.plan, self._pool
        return Device(job.model, train, validation, seed=job.seed, id=id, round=round, plan=plan, pool=pool)

    def _train(self, device: Device, task: Task, broadcast: Tensors) -> Trained:
        strategy = self._job.strategy
        if device.id in task.stragglers:
            device.plan = device.plan.part(device.random("stragglers"))
        with blamed(strategy, f"on device {device.id} in round {task.round}"):
            update = strategy.local(device, strategy.message(broadcast, device.id))
            if not isinstance(update, Update):
                raise TypeError(f"local returned {type(update).__name__}, expected an Update")
            if not isinstance(update.losses, np.ndarray):
                raise TypeError(f"the update's losses are a {type(update.losses).__name__}, expected a numpy array")
            check_tensors(update.tensors, "the update's")
            check_tensors(device.state, "device.state's")
            if not (update.isfinite() and 0 < update.weight < math.inf and _isfinite(device.state)):
                return Trained(excluded=(device.id,), train_calls=device.calls.train, infer_calls=device.calls.infer)
        if device.state:
            self._store.save(device.id, task.round, device.state)
        tensors = update.tensors.items()
        return Trained(
            sums={name: np.multiply(array_of(tensor), update.weight, dtype=np.float64) for name, tensor in tensors},
            layouts={name: tensor.layout if isinstance(tensor, Weights) else None for name, tensor in tensors},
            weight=update.weight,
            contributed=(device.id,),
            stateful=(device.id,) if device.state else (),
            loss_sum=update.weight * float(update.losses.sum() / len(update.losses)) if len(update.losses) else 0.0,
            loss_weight=update.weight if len(update.losses) else 0.0,
            bytes_up=sum(array_of(tensor).nbytes for _, tensor in tensors),
            train_calls=device.calls.train,
            infer_calls=device.calls.infer,
            each={device.id: update} if strategy.keeps_updates else {},
        )


def join(parts: Iterable[Trained]) -> Trained:
    """Adds what devices of a block, or the blocks of a round, did: in the order given, so that the bits are the same."""
    sums: dict[str, NDArray[np.float64]] = {}
    own: set[str] = set()  # sums that were made here: only to these may be added in place
    layouts: dict[str, Layout | None] = {}
    each: dict[int, Update] = {}
    listed: list[Trained] = []
    for part in parts:
        for name, array in part.sums.items():
            if name in own:
                sums[name] += array
            elif name in sums:
                sums[name] = sums[name] + array
                own.add(name)
            else:
                sums[name] = array
        layouts |= part.layouts
        each |= part.each
        listed.append(replace(part, sums={}, each={}))
    return Trained(
        sums=sums,
        layouts=layouts,
        weight=_added(part.weight for part in listed),
        contributed=tuple(id for part in listed for id in part.contributed),
        excluded=tuple(id for part in listed for id in part.excluded),
        stateful=tuple(id for part in listed for id in part.stateful),
        loss_sum=_added(part.loss_sum for part in listed),
        loss_weight=_added(part.loss_weight for part in listed),
        bytes_up=sum(part.bytes_up for part in listed),
        train_calls=sum(part.train_calls for part in listed),
        infer_calls=sum(part.infer_calls for part in listed),
        each=each,
    )


def _added(values: Iterable[float]) -> float:
    """Returns the sum from left to right; Python's own `sum` of floats rounds otherwise from version 3.12 on."""
    return reduce(operator.add, values, 0.0)


def mean(trained: Trained, participants: int) -> Updates:
    """Returns a round's weighted mean, float32, of a cohort out of `participants` devices."""
    means: dict[str, Weights | NDArray[Any]] = {}
    for name, total in trained.sums.items():
        layout, average = trained.layouts[name], (total / trained.weight).astype(np.float32)
        means[name] = average if layout is None else Weights(layout, average)
    return Updates(means, trained.weight, len(trained.contributed), participants, trained.each)


def _isfinite(state: Tensors) -> bool:
    return all(bool(np.isfinite(array_of(tensor)).all()) for tensor in state.values())
