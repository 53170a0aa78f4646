"""Work of a block of devices that are phones: all run concurrently, each in a thread that waits for its phone."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from odt_sim.data.columns import Array
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.phone import phones
from odt_sim.phone.device import PhoneExamples, PhonePool, phone_device
from odt_sim.phone.frames import Message
from odt_sim.phone.phones import PhoneError, Phones
from odt_sim.simulation.evaluation import Evaluation, Row
from odt_sim.simulation.exclusion import AWAY, TIMED_OUT, Excluded
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.time_limit import OutOfTime
from odt_sim.simulation.worker import Worker
from odt_sim.strategies.base import Tensors

Result = TypeVar("Result")

MOST_AT_ONCE = 1024
"""Maximum number of phones that work at the same time; the others wait."""
PLACEHOLDER = phones.Examples(1, 0, 1)
"""The numbers of examples of a device that is excluded because its phone never connected."""


class PhoneWorker(Worker):
    """Worker that runs strategies in this process with devices whose models and examples are on phones."""

    def __init__(self, job: Job, connected: Phones) -> None:
        """Prepare for a job with the phones that connect."""
        super().__init__(job)
        self._phones, self._interpreter = connected, PhonePool(job.model)
        self._evaluation = PhoneEvaluation(job, connected)
        self._blocks = ThreadPoolExecutor(MOST_AT_ONCE, "block")
        self._devices = ThreadPoolExecutor(MOST_AT_ONCE, "phone")
        self._loading = Lock()

    def close(self) -> None:
        """End the threads; in-flight requests must have failed before."""
        for threads in (self._blocks, self._devices):
            threads.shutdown(cancel_futures=True)

    def at_once(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Run work on all blocks concurrently, and yield the results in order."""
        return self._blocks.map(work, tasks)

    def _on_each(self, task: Task, work: Callable[[Device], Result]) -> Iterator[tuple[Device, Result]]:
        with self._loading:
            states = {id: self._store.load(id, task.versions.get(id)) for id in task.devices}

        def one(id: int) -> tuple[Device, Result]:
            device = self._of_phone(id, task)
            device.state = states[id]
            return device, work(device)

        return self._devices.map(one, task.devices)

    def train_each(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[Trained]:
        """Train the devices of each block concurrently; see `Worker.train_each`."""
        for task in tasks:
            done = self._on_each(task, partial(self._update, task=task, broadcast=broadcast))
            yield self._sum(task, [[*done]])

    def _of_phone(self, id: int, task: Task) -> Device:
        job, phone = self._job, self._phones.connected(id)
        limit = job.fleet.timeout
        until = None if limit is None else time.monotonic() + limit
        shown = {"round": task.round, "kind": task.kind}

        def ask(header: Mapping[str, Any], tensors: Mapping[str, Array]) -> Message:
            if phone is None:
                raise PhoneError(f"{AWAY}: not connected")
            return phone.ask({**header, **shown}, tensors, until)

        examples = phone.examples if phone else PLACEHOLDER
        return phone_device(examples, ask, self._interpreter, seed=job.seed, id=id, round=task.round, plan=job.plan)

    def _within_limits(self, device: Device, work: Callable[[], Result]) -> Result | Excluded:
        if self._phones.connected(device.id) is None:
            return Excluded(f"{AWAY}: not connected")
        try:
            return work()
        except PhoneError as error:
            return Excluded(str(error))
        except OutOfTime:
            return Excluded(TIMED_OUT)

    def _evaluate(self, device: Device, task: Task, broadcast: Tensors) -> Row:
        row = super()._evaluate(device, task, broadcast)
        if "not_evaluated" in row:
            train, validation, test = self._phones.examples(device.id) or (0, 0, 0)
            row |= {"train_examples": train, "validation_examples": validation, "examples": test}
        return row


class PhoneEvaluation(Evaluation):
    """Evaluation of phones on their test examples, which stay on the phones."""

    def __init__(self, job: Job, connected: Phones) -> None:
        """Evaluate phones of a job."""
        super().__init__(job)
        self._phones = connected

    def _own_test(self, device: Device) -> Examples:
        return PhoneExamples.counted((self._phones.examples(device.id) or PLACEHOLDER).test)
