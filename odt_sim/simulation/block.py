"""The work of one block of devices, the same on every backend."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from odt_sim.aggregators.base import Aggregator
from odt_sim.aggregators.mean import Mean
from odt_sim.data.dataset import Indices
from odt_sim.data.federated import FederatedData
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.inference import Calls
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.runtime import RuntimePool
from odt_sim.errors import InvocationError, SimulationError
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.persistence.device_states import DeviceStore, RoundStates
from odt_sim.persistence.storage import Storage
from odt_sim.persistence.versions import Version
from odt_sim.settings import Fleet
from odt_sim.simulation.evaluation import Evaluation, Row, unmeasured
from odt_sim.simulation.exclusion import TIMED_OUT, Sick, failed, unusable
from odt_sim.simulation.strategy_errors import blamed, check_finite, check_tensors
from odt_sim.simulation.time_limit import OutOfTime, timed
from odt_sim.strategies.base import Strategy, Tensors, Update, Updates, array_of

Result = TypeVar("Result")

PIECE = 1 << 14  # numbers that are added at once: 128 KiB of them


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
        aggregator: How updates become one, where devices send any.
    """

    model: TrainableModel
    data: FederatedData
    strategy: Strategy
    plan: TrainingPlan
    seed: int
    storage: Storage
    fleet: Fleet
    aggregator: Aggregator = field(default_factory=Mean)

    @property
    def participants(self) -> int:
        """The number of devices that cohorts are drawn from."""
        return self.data.devices - (0 if self.strategy.alone else self.fleet.unseen)

    @property
    def cohort(self) -> int:
        """The number of devices that each round is begun with."""
        return self.participants if self.strategy.alone else self.fleet.cohort or self.participants

    @property
    def effective_aggregator(self) -> Aggregator:
        """The aggregator that has a say: none but the default where devices learn alone and send nothing."""
        return Mean() if self.strategy.alone else self.aggregator

    def cost(self, task: "Task") -> float:
        """Returns about how many examples a block's devices learn from or are measured on, and one more for each."""
        offsets = self.data.offsets[list(task.devices)]
        if task.kind != "train":
            return float((offsets[:, 3] - offsets[:, 0] + 1).sum())
        if self.plan.steps is not None:
            return float(len(task.devices) * (self.plan.steps * self.model.batch_size + 1))
        return float((self.plan.epochs * (offsets[:, 1] - offsets[:, 0]) + 1).sum())


@dataclass(frozen=True)
class Task:
    """One block's work.

    Attributes:
        kind: `train`; `evaluate` what is deployed; `final`, which measures all that is reported.
        round: The round to train, or whose outcome to evaluate.
        devices: The devices' ids, ascending.
        versions: The committed versions of the states of those devices that have one.
        stragglers: The ids of those devices that do a part of their work only.
    """

    kind: Literal["train", "evaluate", "final"]
    round: int
    devices: tuple[int, ...]
    versions: Mapping[int, Version] = field(default_factory=dict)
    stragglers: Set[int] = frozenset()

    def each(self) -> "list[Task]":
        """Returns a task for each device."""
        return [
            Task(self.kind, self.round, (device,), _only(self.versions, device), self.stragglers & {device})
            for device in self.devices
        ]


def _only(versions: Mapping[int, Version], device: int) -> Mapping[int, Version]:
    return {device: versions[device]} if device in versions else {}


@dataclass(frozen=True)
class Trained:
    """What a device, a block or a round did in training; empty as it stands.

    Attributes:
        sums: For each tensor of the updates the sum of `weight * tensor`, float64, in the order of the devices; of a single
            device the tensor itself, as it was sent. Empty where the aggregator asks for the single updates.
        layouts: For each tensor what its numbers are; None for a plain array.
        weight: The sum of the weights.
        contributed: The ids of the devices whose updates are in the sums.
        excluded: For each device that was left out why, by id.
        stateful: The ids of those that wrote a state, each with the file that holds it: the id of the first device in it.
        loss_sum: The sum of `weight * mean loss of the device's steps`.
        loss_weight: The sum of the weights of the devices that made a step.
        bytes_up: What the devices that contributed sent.
        train_calls: The steps that all of them made, those left out too; none of those that timed out.
        infer_calls: The batches of inference that they made, in the same way.
        each: The single updates, where the strategy or the aggregator asks for them.
        single: Whether this is a single device, whose tensors are yet to be weighted: they are half as many bytes.
        unweighted: The names of the tensors in whose sums all devices count alike.
    """

    sums: dict[str, NDArray[Any]] = field(default_factory=dict)
    layouts: dict[str, Layout | None] = field(default_factory=dict)
    weight: float = 0.0
    contributed: tuple[int, ...] = ()
    excluded: dict[int, str] = field(default_factory=dict)
    stateful: dict[int, int] = field(default_factory=dict)
    loss_sum: float = 0.0
    loss_weight: float = 0.0
    bytes_up: int = 0
    train_calls: int = 0
    infer_calls: int = 0
    each: dict[int, Update] = field(default_factory=dict)
    single: bool = False
    unweighted: frozenset[str] = frozenset()


class Worker:
    """Does blocks of a job, one device after the other, in interpreters that they share."""

    def __init__(self, job: Job, *, replaceable: bool = False) -> None:
        """Starts no interpreter yet.

        Args:
            job: Whose blocks.
            replaceable: Whether this process may end where a device does not come back in time; another takes its place.
        """
        self._job, self._replaceable = job, replaceable
        self._pool = RuntimePool(job.model)
        self._store = DeviceStore(job.storage, job.model)
        self._evaluation = Evaluation(job.data, job.strategy, job.fleet, job.seed)

    def train(self, task: Task, broadcast: Tensors) -> Trained:
        """Trains the devices of a block and returns their sum.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        states = RoundStates(self._store, task.round)
        parts = self._on_each(task, lambda device: self._train(device, task, broadcast, states))
        if len(task.devices) > 1:
            trained = join(parts)
        else:
            [trained] = parts
        states.write()
        return trained

    def evaluate(self, task: Task, broadcast: Tensors) -> list[Row]:
        """Evaluates what each device of a block would deploy; keeps nothing.

        Returns:
            A row a device, as `Evaluation.row` or, where that fails, `unmeasured` makes it.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        return list(self._on_each(task, lambda device: self._evaluate(device, task, broadcast)))

    def _on_each(self, task: Task, work: Callable[[Device], Result]) -> Iterator[Result]:
        # All parts at once: after a device's training nothing that splits another's is in the processor's caches.
        parts = [self._job.data.parts(id) for id in task.devices]
        for id, (train, validation, _) in zip(task.devices, parts, strict=True):
            device = self._device(id, task.round, train, validation)
            device.state = self._store.load(id, task.versions.get(id))
            try:
                yield work(device)
            finally:
                device.release()

    def _device(self, id: int, round: int, *parts: Indices) -> Device:
        job, data = self._job, self._job.data
        train, validation = (Examples(data.x, data.y, rows) for rows in parts)
        plan, pool = job.plan, self._pool
        return Device(job.model, train, validation, seed=job.seed, id=id, round=round, plan=plan, pool=pool)

    def _within_limits(self, work: Callable[[], Result]) -> Result | Sick:
        """Does a device's own part of the work; what it leaves half done in an interpreter goes with that."""
        seconds = self._job.fleet.timeout
        try:
            return work() if seconds is None else timed(work, seconds, ends_process=self._replaceable)
        except (InvocationError, OutOfTime) as error:
            self._pool = RuntimePool(self._job.model)
            return Sick(TIMED_OUT) if isinstance(error, OutOfTime) else failed(error)

    def _evaluate(self, device: Device, task: Task, broadcast: Tensors) -> Row:
        final = task.kind == "final"
        row = self._within_limits(lambda: self._evaluation.row(device, broadcast, final=final))
        return unmeasured(self._job.data, device.id, row.reason) if isinstance(row, Sick) else row

    def _train(self, device: Device, task: Task, broadcast: Tensors, states: RoundStates) -> Trained:
        strategy, aggregator = self._job.strategy, self._job.effective_aggregator
        if device.id in task.stragglers:
            device.plan = device.plan.part(device.random("stragglers"))
        update = self._within_limits(lambda: self._local(device, task, broadcast))
        if isinstance(update, Sick):
            calls = Calls() if update.reason == TIMED_OUT else device.calls
            excluded = {device.id: update.reason}
            return Trained(excluded=excluded, train_calls=calls.train, infer_calls=calls.infer)
        with blamed(aggregator, f"on device {device.id} in round {task.round}"):
            update = replace(update, tensors=aggregator.limit(update.tensors))
            check_finite(update.tensors, "the limited update's")
        tensors = update.tensors.items()
        summed = {} if aggregator.keeps_updates else update.tensors
        writes = device.state or device.id in task.versions  # also that it keeps nothing any more
        return Trained(
            sums={name: array_of(tensor) for name, tensor in summed.items()},
            layouts={name: tensor.layout if isinstance(tensor, Weights) else None for name, tensor in tensors},
            weight=update.weight,
            contributed=(device.id,),
            stateful={device.id: states.add(device.id, device.state)} if writes else {},
            loss_sum=update.weight * float(update.losses.sum() / len(update.losses)) if len(update.losses) else 0.0,
            loss_weight=update.weight if len(update.losses) else 0.0,
            bytes_up=sum(array_of(tensor).nbytes for _, tensor in tensors),
            train_calls=device.calls.train,
            infer_calls=device.calls.infer,
            each={device.id: update} if strategy.keeps_updates or aggregator.keeps_updates else {},
            single=True,
            unweighted=frozenset(update.tensors) if aggregator.unweighted else strategy.unweighted,
        )

    def _local(self, device: Device, task: Task, broadcast: Tensors) -> Update | Sick:
        strategy = self._job.strategy
        with blamed(strategy, f"on device {device.id} in round {task.round}"):
            update = strategy.local(device, strategy.message(broadcast, device.id))
            if not isinstance(update, Update):
                raise TypeError(f"local returned {type(update).__name__}, expected an Update")
            if not isinstance(update.losses, np.ndarray):
                raise TypeError(f"the update's losses are a {type(update.losses).__name__}, expected a numpy array")
            check_tensors(update.tensors, "the update's")
            check_tensors(device.state, "device.state's")
            return unusable(update, device.state, self._job.fleet.largest_update) or update


def join(parts: Iterable[Trained]) -> Trained:
    """Adds what devices of a block, or the blocks of a round, did: in the order given, so that the bits are the same.

    Raises:
        SimulationError: Devices sent a tensor in different shapes.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    layouts: dict[str, Layout | None] = {}
    each: dict[int, Update] = {}
    contributed, excluded, stateful = list[int](), dict[int, str](), dict[int, int]()
    unweighted = frozenset[str]()
    weight = loss_sum = loss_weight = 0.0
    bytes_up = train_calls = infer_calls = 0
    for part in parts:
        for name, array in part.sums.items():
            factor = part.weight if part.single and name not in part.unweighted else 1.0  # which changes no bit
            if name in sums:
                _check_shapes(name, sums[name].shape, array.shape, part.contributed)
                _add(sums[name], array, factor)
            else:
                sums[name] = array.astype(np.float64, order="C")
                sums[name] *= factor
        layouts |= part.layouts
        unweighted |= part.unweighted
        each |= part.each
        contributed += part.contributed
        excluded |= part.excluded
        stateful |= part.stateful
        weight += part.weight
        loss_sum += part.loss_sum
        loss_weight += part.loss_weight
        bytes_up += part.bytes_up
        train_calls += part.train_calls
        infer_calls += part.infer_calls
    return Trained(
        sums=sums,
        layouts=layouts,
        weight=weight,
        contributed=tuple(contributed),
        excluded=excluded,
        stateful=stateful,
        loss_sum=loss_sum,
        loss_weight=loss_weight,
        bytes_up=bytes_up,
        train_calls=train_calls,
        infer_calls=infer_calls,
        each=each,
        unweighted=unweighted,
    )


def mean(trained: Trained, participants: int) -> Updates:
    """Returns a round's mean, float32, of a cohort out of `participants` devices: weighted, but for what is not."""
    means: dict[str, Weights | NDArray[Any]] = {}
    for name, total in trained.sums.items():
        weight = len(trained.contributed) if name in trained.unweighted else trained.weight
        layout, average = trained.layouts[name], (total / weight).astype(np.float32)
        means[name] = average if layout is None else Weights(layout, average)
    return Updates(means, trained.weight, len(trained.contributed), participants, trained.each)


def _check_shapes(name: str, expected: tuple[int, ...], found: tuple[int, ...], devices: Sequence[int]) -> None:
    if found != expected:
        raise SimulationError(
            f"update {name!r}: of shape {found} from device {devices[0]}, {expected} from those before it; "
            "send the same shape from all devices"
        )


def _add(total: NDArray[np.float64], array: NDArray[Any], weight: float) -> None:
    """Adds `weight * array`, in float64 and in pieces that stay in the processor's cache on the way."""
    flat, given = total.reshape(-1), array.reshape(-1)
    for start in range(0, flat.size, PIECE):
        piece = given[start : start + PIECE].astype(np.float64)
        piece *= weight
        flat[start : start + PIECE] += piece
