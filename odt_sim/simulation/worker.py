"""The work of one block of devices, the same on every backend."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from numbers import Real
from typing import TypeVar

import numpy as np

from odt_sim.data.dataset import Indices
from odt_sim.device.device import Device
from odt_sim.device.embedding_cache import Embedded, EmbeddingCache
from odt_sim.device.examples import Examples
from odt_sim.device.inference import Calls
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.errors import InvocationError
from odt_sim.model.tensors import array_of, size_of
from odt_sim.model.weights import Weights
from odt_sim.persistence.device_states import DeviceStore, RoundStates
from odt_sim.persistence.records import HOSTILE
from odt_sim.simulation.clock.oort import statistical_utility
from odt_sim.simulation.evaluation import Evaluation, Row, unmeasured
from odt_sim.simulation.exclusion import TIMED_OUT, Excluded, check_update, litert_failure
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.sums import add, check_change, check_finite, check_tensors, scaled
from odt_sim.simulation.time_limit import OutOfTime, timed
from odt_sim.strategies.base import Strategy, Tensors, Update

Result = TypeVar("Result")
Selected = tuple[Task, int, Sequence[Indices]]
Done = tuple[Device, Update | Excluded]

MOST_BYTES = 1 << 24
"""The maximum bytes of training rows and weights of the devices that are prepared before the first of them trains."""


class Worker:
    """Processes blocks of a job, one device after another, in shared interpreters.

    Attributes:
        embeddings: The embeddings of the devices' examples.
    """

    def __init__(self, job: Job, *, replaceable: bool = False, embeddings: EmbeddingCache | None = None) -> None:
        """Prepare for a job; interpreters start later.

        Args:
            job: The job.
            replaceable: Whether this process may end if a device hangs in native code, because another process replaces
                it.
            embeddings: Embeddings of an earlier worker; by default an empty cache.
        """
        self._job, self._hostile, self._replaceable = job, job.hostile, replaceable
        self.embeddings = embeddings or EmbeddingCache()
        self._pool = self._new_pool()
        self._store = DeviceStore(job.storage, job.model)
        self._weight_bytes = 4 * job.model.layout.size
        self._row_bytes = sum(rows.nbytes // len(rows) for rows in (job.data.x, job.data.y))
        self._evaluation = Evaluation(job)

    def make_files(self) -> None:
        """Create the files that interpreters run, so that later forks of this process need not."""
        self._pool.file()

    def learn(self, embeddings: Iterable[Embedded]) -> None:
        """Store embeddings that workers in other processes computed."""
        for each in embeddings:
            self.embeddings.add(each, self._job.data.x)

    def train(self, task: Task, broadcast: Tensors) -> Trained:
        """Train the devices of a block and return the sum of their results.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        return next(self.train_each([task], broadcast))

    def train_each(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[Trained]:
        """Train the devices of several blocks, one block after another, and yield the sum of each block's results.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        devices = self._prepared(tasks)
        return (self._sum(task, self._trained_in_groups(task, broadcast, devices)) for task in tasks)

    def _trained_in_groups(self, task: Task, broadcast: Tensors, devices: Iterator[Device]) -> Iterator[list[Done]]:
        """Train the devices of a block; yield them in groups whose weights fit into `MOST_BYTES`."""
        own = islice(devices, len(task.devices))
        most = max(1, MOST_BYTES // self._weight_bytes)
        while group := [(device, self._update(device, task, broadcast)) for device in islice(own, most)]:
            yield group

    def _sum(self, task: Task, groups: Iterable[list[Done]]) -> Trained:
        """Return the sum of the results of a block."""
        states = RoundStates(self._store, task.round if task.saves is None else task.saves)
        trained, single = Trained(), len(task.devices) == 1
        for group in groups:
            parts = [self._trained(device, update, task, states) for device, update in group]
            group.clear()  # frees the devices before the next ones train
            if single:
                [trained] = parts
            else:
                add(trained, *parts)
            del parts
        states.write()
        return trained

    def _prepared(self, tasks: Sequence[Task]) -> Iterator[Device]:
        """Yield the devices of blocks in order; those of a group are prepared before the first, see `Device.prepare`."""
        for group in self._groups(tasks):
            pool, devices = self._pool, self._loaded_group(group)
            for each in group:
                if self._pool is not pool:  # a failure dropped the interpreters
                    devices[0] = self._loaded(*each)
                yield devices.pop(0)  # unnamed, so that it is freed as soon as it is done

    def _loaded_group(self, group: Sequence[Selected]) -> list[Device]:
        devices = [self._loaded(*each) for each in group]
        if len(devices) > 1:
            for device in devices:
                device.prepare()
        return devices

    def _groups(self, tasks: Sequence[Task]) -> Iterator[list[Selected]]:
        """Yield the devices of blocks in groups whose training rows and weights fit into `MOST_BYTES`."""
        group, held = list[Selected](), 0
        for each in chain.from_iterable(map(self._selected, tasks)):
            size = self._size(each)
            if group and held + size > MOST_BYTES:
                yield group
                group, held = [], 0
            group.append(each)
            held += size
        yield group

    def _size(self, device: Selected) -> int:
        """Return the bytes of a device's training examples and of its weights."""
        _, _, (train, _) = device
        return self._weight_bytes + len(train) * self._row_bytes

    def _selected(self, task: Task) -> list[Selected]:
        """Return the devices of a block and their training and validation examples.

        All devices are split at once, because training evicts the data that splitting needs from the processor's
        caches.
        """
        return [(task, id, self._job.data.arrived(id, task.round)[:2]) for id in task.devices]

    def evaluate(self, task: Task, broadcast: Tensors) -> list[Row]:
        """Return a row for each device of a block, from `Evaluation.row` or `unmeasured`; keep no state.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        return [row for _, row in self._on_each(task, lambda device: self._evaluate(device, task, broadcast))]

    def deployed(self, task: Task, broadcast: Tensors) -> Iterator[Device]:
        """Yield the devices of a block with their deployed models; each is released when the next one is yielded.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        return (device for device, _ in self._on_each(task, lambda device: self._deploy(device, task, broadcast)))

    def _on_each(self, task: Task, work: Callable[[Device], Result]) -> Iterator[tuple[Device, Result]]:
        """Run `work` on the devices of a block; yield each device with its result, in order."""
        for each in self._selected(task):
            device = self._loaded(*each)
            try:
                yield device, work(device)
            finally:
                device.release()

    def _loaded(self, task: Task, id: int, parts: Sequence[Indices]) -> Device:
        """Return a device of a block with its committed state, given its training and validation examples."""
        job, data = self._job, self._job.data
        examples = (Examples(data.x, data.y, rows) for rows in parts)
        own = job.own_metrics
        device = Device(
            job.model, *examples, seed=job.seed, id=id, round=task.round, plan=job.plan, pool=self._pool, metrics=own
        )
        device.state = self._store.load(id, task.versions.get(id))
        return device

    def _within_limits(self, device: Device, work: Callable[[], Result]) -> Result | Excluded:
        """Do the work of a device; a failure drops the interpreters, which may be in an inconsistent state."""
        seconds = self._job.fleet.timeout
        try:
            return work() if seconds is None else timed(work, seconds, ends_process=self._replaceable)
        except (InvocationError, OutOfTime) as error:
            self._pool = self._new_pool()
            return Excluded(TIMED_OUT) if isinstance(error, OutOfTime) else litert_failure(error)

    def _new_pool(self) -> RuntimePool:
        job = self._job
        return RuntimePool(job.model, start=job.runtime, embeddings=self.embeddings)

    def _evaluate(self, device: Device, task: Task, broadcast: Tensors) -> Row:
        if device.id in self._hostile:
            return unmeasured(self._job.data, device.id, HOSTILE)
        final, received = task.kind == "final", task.received(device.id, broadcast)
        row = self._within_limits(device, lambda: self._evaluation.row(device, received, broadcast, final=final))
        return unmeasured(self._job.data, device.id, row.reason) if isinstance(row, Excluded) else row

    def _deploy(self, device: Device, task: Task, broadcast: Tensors) -> None:
        self._evaluation.deploy(device, task.received(device.id, broadcast))

    def _update(self, device: Device, task: Task, broadcast: Tensors) -> Update | Excluded:
        if device.id in task.stragglers:
            device.plan = device.plan.part(device.random("stragglers"))
        if device.id in task.units:
            device.plan = device.plan.with_amount(task.units[device.id])
        try:
            return self._within_limits(device, lambda: self._local(device, task, broadcast))
        finally:
            device.release()

    def _trained(self, device: Device, update: Update | Excluded, task: Task, states: RoundStates) -> Trained:
        strategy, aggregator = self._job.strategy, self._job.effective_aggregator
        if isinstance(update, Excluded):
            calls = Calls() if update.reason == TIMED_OUT else device.calls
            excluded = {device.id: update.reason}
            up, train, infer = update.bytes_up, calls.train, calls.infer
            return Trained(excluded=excluded, bytes_up=up, train_calls=train, infer_calls=infer)
        with self._job.aggregator_errors(f"on device {device.id} in round {task.round}"):
            limited = aggregator.limit(update.tensors)
            if limited is not update.tensors:  # the strategy's own tensors were checked before
                check_finite(limited, "the limited update's")
            weight = 1.0 if strategy.weighting == "uniform" else update.weight
            if limited is not update.tensors or weight != update.weight:
                update = replace(update, tensors=limited, weight=weight)
        if device.id in task.factors:
            update = replace(update, tensors=scaled(update.tensors, task.factors[device.id]))
        tensors = update.tensors.items()
        losses = update.losses
        counts = len(losses) and device.id not in self._hostile
        summed = [] if aggregator.keeps_updates else [each for each in tensors if each[0] not in strategy.not_averaged]
        writes = device.state or device.id in task.versions  # an empty state replaces the old one
        return Trained(
            sums={name: array_of(tensor) for name, tensor in summed},
            layouts={name: tensor.layout if isinstance(tensor, Weights) else None for name, tensor in tensors},
            weight=update.weight,
            contributed=[device.id],
            stateful={device.id: states.add(device.id, device.state)} if writes else {},
            loss_sum=update.weight * float(losses.sum() / len(losses)) if counts else 0.0,
            loss_weight=update.weight if counts else 0.0,
            bytes_up=size_of(update.tensors),
            train_calls=device.calls.train,
            infer_calls=device.calls.infer,
            each={device.id: update} if strategy.keeps_updates or aggregator.keeps_updates else {},
            single=True,
            unweighted=frozenset(update.tensors) if aggregator.unweighted else strategy.unweighted,
            utilities={device.id: statistical_utility(len(device.train_examples), losses)} if task.utility else {},
        )

    def _local(self, device: Device, task: Task, broadcast: Tensors) -> Update | Excluded:
        job, strategy, hostile = self._job, self._job.strategy, device.id in self._hostile
        errors = job.attack_errors if hostile else job.strategy_errors
        with errors(f"on device {device.id} in round {task.round}"):
            received = task.received(device.id, broadcast)
            update = job.attack.local(strategy, device, received) if hostile else strategy.local(device, received)
            if not isinstance(update, Update):
                raise TypeError(f"local returned {type(update).__name__}, expected an Update")
            if not isinstance(update.losses, np.ndarray):
                raise TypeError(f"the update's losses are a {type(update.losses).__name__}, expected a numpy array")
            if not isinstance(update.weight, Real):
                raise TypeError(f"the update's weight is a {type(update.weight).__name__}, expected a number")
            if device.records:
                raise ValueError(
                    f"device.records[{next(iter(device.records))!r}] is set in local, which writes no line to "
                    "devices.jsonl; set it in deploy, from device.state if local computes it"
                )
            check_tensors(update.tensors, "the update's")
            check_tensors(device.state, "device.state's")
            if task.round == 1 and not hostile and type(strategy).aggregate is Strategy.aggregate:
                check_change(update.tensors, device, received)
            return check_update(update, device.state, job.fleet.largest_update) or update
