"""The work of one block of devices, the same on every backend."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, TypeVar

import numpy as np

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
from odt_sim.strategies.base import Tensors, Update

Result = TypeVar("Result")


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
        states = RoundStates(self._store, task.state_round)
        total = Trained()
        for id in task.devices:
            device = self._loaded(task, id)
            update = self._update(device, task, broadcast)
            trained = self._trained(device, update, task, states)
            if len(task.devices) == 1:
                total = trained
            else:
                add(total, trained)
        states.write()
        return total

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
        for id in task.devices:
            device = self._loaded(task, id)
            try:
                yield device, work(device)
            finally:
                device.release()

    def _loaded(self, task: Task, id: int) -> Device:
        """Return a device of a block with its committed state."""
        job, data = self._job, self._job.data
        examples = (Examples(data.x, data.y, rows) for rows in data.arrived(id, task.round)[:2])
        own = job.own_metrics
        device = Device(
            job.model, *examples, seed=job.seed, id=id, round=task.round, plan=job.plan, pool=self._pool, metrics=own
        )
        device.state = self._store.load(id, task.versions.get(id))
        return device

    def _failed(self, error: InvocationError | OutOfTime) -> Excluded:
        """Return why a device is excluded; drop the interpreters, which may be in an inconsistent state."""
        self._pool = self._new_pool()
        return Excluded(TIMED_OUT) if isinstance(error, OutOfTime) else litert_failure(error)

    def _new_pool(self) -> RuntimePool:
        job = self._job
        return RuntimePool(job.model, start=job.runtime, embeddings=self.embeddings, usual_steps=job.usual_steps)

    def _evaluate(self, device: Device, task: Task, broadcast: Tensors) -> Row:
        if device.id in self._hostile:
            return unmeasured(self._job.data, device.id, HOSTILE)
        final, received = task.kind == "final", task.received(device.id, broadcast)

        def measured() -> Row | Excluded:
            return self._evaluation.row(device, received, broadcast, final=final)

        seconds = self._job.fleet.timeout
        try:
            row = measured() if seconds is None else timed(measured, seconds, ends_process=self._replaceable)
        except (InvocationError, OutOfTime) as error:
            row = self._failed(error)
        return unmeasured(self._job.data, device.id, row.reason) if isinstance(row, Excluded) else row

    def _deploy(self, device: Device, task: Task, broadcast: Tensors) -> None:
        self._evaluation.deploy(device, task.received(device.id, broadcast))

    def _update(self, device: Device, task: Task, broadcast: Tensors) -> Update | Excluded:
        """Return the update of a device, as its strategy or the attack makes it, or why it is excluded."""
        job, hostile = self._job, device.id in self._hostile
        local = partial(job.attack.local, job.strategy) if hostile else job.strategy.local
        errors = job.attack_errors if hostile else job.strategy_errors
        seconds, received = job.fleet.timeout, task.received(device.id, broadcast)
        if device.id in task.stragglers:
            device.plan = device.plan.part(device.random("stragglers"))
        if device.id in task.units:
            device.plan = device.plan.with_amount(task.units[device.id])
        try:
            with errors(f"on device {device.id} in round {task.round}"):
                if seconds is None:
                    update = local(device, received)
                else:
                    update = timed(lambda: local(device, received), seconds, ends_process=self._replaceable)
                self._check(update, device)
                excluded = check_update(update, device.state, job.fleet.largest_update)
                if not excluded and task.round == 1 and not hostile:
                    check_change(job.strategy, update.tensors, device, received)
            return excluded or update
        except (InvocationError, OutOfTime) as error:
            return self._failed(error)
        finally:
            device.release()

    def _check(self, update: Any, device: Device) -> None:
        """Check the types of what `local` returned and set."""
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
            unweighted=frozenset(update.tensors) if aggregator.unweighted else strategy.unweighted,
            single=True,
            utilities={device.id: statistical_utility(len(device.train_examples), losses)} if task.utility else {},
        )
