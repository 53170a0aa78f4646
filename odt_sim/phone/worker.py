"""Work of a block of devices that are phones: all run concurrently, each in a thread that waits for its phone."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from odt_sim.data.store.columns import Array
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.errors import InvocationError
from odt_sim.persistence.device_states import DeviceStore, RoundStates
from odt_sim.phone import phones
from odt_sim.phone.device import PhoneExamples, PhonePool, phone_device
from odt_sim.phone.frames import Message
from odt_sim.phone.phones import PhoneError, Phones
from odt_sim.simulation.executors.job import Job, Task
from odt_sim.simulation.executors.local_work import LocalWork
from odt_sim.simulation.run.evaluation import Evaluation, Row
from odt_sim.simulation.run.exclusion import AWAY, TIMED_OUT, Excluded
from odt_sim.simulation.run.sums import join
from odt_sim.simulation.run.time_limit import OutOfTime
from odt_sim.strategies.base import Tensors

Result = TypeVar("Result")

MOST_AT_ONCE = 1024
"""Maximum number of phones that work at the same time; the others wait."""
PLACEHOLDER = phones.Examples(1, 0, 1)
"""The numbers of examples of a device that is excluded because its phone never connected."""


class PhoneWorker:
    """Worker that runs strategies in this process with devices whose models and examples are on phones."""

    def __init__(self, job: Job, connected: Phones) -> None:
        """Prepare for a job with the phones that connect."""
        self._job, self._phones, self._interpreter = job, connected, PhonePool(job.model)
        self._store = DeviceStore(job.storage, job.model)
        self._work = LocalWork(job, Evaluation(job, self._test_examples), self._failed, limited=False)
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

    def run(self, task: Task, broadcast: Tensors) -> Any:
        """Run the devices of a block concurrently; see `Worker.run`."""
        if task.kind != "train":
            return self._rows(task, broadcast)
        devices = self._of_block(task)
        updates = [*self._devices.map(lambda device: self._work.update(device, task, broadcast), devices)]
        states = RoundStates(self._store, task.state_round)
        parts = [self._work.trained(*pair, task, states) for pair in zip(devices, updates, strict=True)]
        states.write()
        return parts[0] if len(parts) == 1 else join(parts)

    def _rows(self, task: Task, broadcast: Tensors) -> list[Row]:
        def evaluated(device: Device) -> Row:
            row = self._work.evaluate(device, task, broadcast)
            if "not_evaluated" in row:
                train, validation, test = self._phones.examples(device.id) or (0, 0, 0)
                row |= {"train_examples": train, "validation_examples": validation, "examples": test}
            return row

        return [*self._devices.map(evaluated, self._of_block(task))]

    def _of_block(self, task: Task) -> list[Device]:
        """Return the devices of a block with their committed states."""
        with self._loading:
            states = [self._store.load(id, task.versions.get(id)) for id in task.devices]
        devices = [self._of_phone(id, task) for id in task.devices]
        for device, state in zip(devices, states, strict=True):
            device.state = state
        return devices

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

    def _test_examples(self, device: Device) -> Examples:
        """Return stand-ins for test examples, which stay on the phones."""
        return PhoneExamples.counted((self._phones.examples(device.id) or PLACEHOLDER).test)

    @staticmethod
    def _failed(error: InvocationError | OutOfTime) -> Excluded:
        return Excluded(TIMED_OUT if isinstance(error, OutOfTime) else str(error))
