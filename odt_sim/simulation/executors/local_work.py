"""What a device does in a round: the strategy trains it, deploys to it, or it is excluded."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from odt_sim.device.device import Device
from odt_sim.device.scoring import Calls
from odt_sim.errors import InvocationError
from odt_sim.model.tensors import array_of, size_of
from odt_sim.model.weights import Weights
from odt_sim.persistence.device_states import RoundStates
from odt_sim.persistence.records import HOSTILE
from odt_sim.simulation.clock.oort import statistical_utility
from odt_sim.simulation.executors.job import Job, Task, Trained
from odt_sim.simulation.run.evaluation import Evaluation, Row, unmeasured
from odt_sim.simulation.run.exclusion import TIMED_OUT, Excluded, check_update
from odt_sim.simulation.run.sums import check_change, check_finite, check_tensors, scaled
from odt_sim.simulation.run.time_limit import OutOfTime, timed
from odt_sim.strategies.base import Tensors, Update

Result = TypeVar("Result")
Failed = Callable[[InvocationError | OutOfTime], Excluded]
"""Returns why a device is excluded whose model failed, or which took too long."""


class LocalWork:
    """The work of single devices of a job, wherever their models run."""

    def __init__(
        self, job: Job, evaluation: Evaluation, failed: Failed, *, limited: bool = True, replaceable: bool = False
    ) -> None:
        """Prepare for a job.

        Args:
            job: The job.
            evaluation: Evaluates devices.
            failed: Handles failures.
            limited: Whether to enforce `fleet.timeout` here; otherwise whatever runs the devices does.
            replaceable: Whether this process may end if a device hangs in native code, because another process replaces
                it.
        """
        self._job, self._hostile, self._evaluation, self._failed = job, job.hostile, evaluation, failed
        self._seconds, self._replaceable = job.fleet.timeout if limited else None, replaceable

    def deploy(self, device: Device, task: Task, broadcast: Tensors) -> None:
        """Set a device's deployed model.

        Raises:
            SimulationError: The strategy failed.
        """
        self._evaluation.deploy(device, task.received(device.id, broadcast))

    def evaluate(self, device: Device, task: Task, broadcast: Tensors) -> Row:
        """Return a device's row, from `Evaluation.row` or `unmeasured`.

        Raises:
            SimulationError: The strategy failed.
        """
        if device.id in self._hostile:
            return unmeasured(self._job.data, device.id, HOSTILE)
        final, received = task.kind == "final", task.received(device.id, broadcast)

        def measured() -> Row | Excluded:
            return self._evaluation.row(device, received, broadcast, final=final)

        try:
            row = measured() if self._seconds is None else self._timed(measured, self._seconds)
        except (InvocationError, OutOfTime) as error:
            row = self._failed(error)
        return unmeasured(self._job.data, device.id, row.reason) if isinstance(row, Excluded) else row

    def update(self, device: Device, task: Task, broadcast: Tensors) -> Update | Excluded:
        """Return the update of a device, as its strategy or the attack makes it, or why it is excluded.

        Raises:
            SimulationError: The strategy failed.
        """
        job, hostile = self._job, device.id in self._hostile
        local = partial(job.attack.local, job.strategy) if hostile else job.strategy.local
        errors = job.attack_errors if hostile else job.strategy_errors
        received = task.received(device.id, broadcast)
        if device.id in task.stragglers:
            device.plan = device.plan.part(device.random("stragglers"))
        if device.id in task.units:
            device.plan = device.plan.with_amount(task.units[device.id])
        try:
            with errors(f"on device {device.id} in round {task.round}"):
                if self._seconds is None:
                    update = local(device, received)
                else:
                    update = self._timed(lambda: local(device, received), self._seconds)
                _check(update, device)
                excluded = check_update(update, device.state, job.fleet.largest_update)
                if not excluded and task.round == 1 and not hostile:
                    check_change(job.strategy, update.tensors, device, received)
            return excluded or update
        except (InvocationError, OutOfTime) as error:
            return self._failed(error)
        finally:
            device.release()

    def trained(self, device: Device, update: Update | Excluded, task: Task, states: RoundStates) -> Trained:
        """Return the outcome of a device, and add its state to those of its block.

        Raises:
            SimulationError: The aggregator failed.
        """
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

    def _timed(self, work: Callable[[], Result], seconds: float) -> Result:
        return timed(work, seconds, ends_process=self._replaceable)


def _check(update: Any, device: Device) -> None:
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
