"""The work of one block of devices in shared interpreters, the same on every backend."""

from collections.abc import Iterable, Iterator
from typing import Any

from odt_sim.device.device import Device
from odt_sim.device.embedding_cache import Embedded, EmbeddingCache
from odt_sim.device.examples import Examples
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.errors import InvocationError
from odt_sim.persistence.device_states import DeviceStore, RoundStates
from odt_sim.simulation.executors.job import Job, Task, Trained
from odt_sim.simulation.executors.local_work import LocalWork
from odt_sim.simulation.run.evaluation import Evaluation, Row
from odt_sim.simulation.run.exclusion import TIMED_OUT, Excluded, litert_failure
from odt_sim.simulation.run.sums import add
from odt_sim.simulation.run.time_limit import OutOfTime
from odt_sim.strategies.base import Tensors


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
        self._job = job
        self.embeddings = embeddings or EmbeddingCache()
        self._pool = self._new_pool()
        self._store = DeviceStore(job.storage, job.model)
        self._work = LocalWork(job, Evaluation(job), self._failed, replaceable=replaceable)

    def make_files(self) -> None:
        """Create the files that interpreters run, so that later forks of this process need not."""
        self._pool.file()

    def learn(self, embeddings: Iterable[Embedded]) -> None:
        """Store embeddings that workers in other processes computed."""
        for each in embeddings:
            self.embeddings.add(each, self._job.data.x)

    def run(self, task: Task, broadcast: Tensors) -> Any:
        """Run a block: return the sum of its devices, a `Trained`, or, if its task is to evaluate them, their rows.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        if task.kind != "train":
            return self._rows(task, broadcast)
        states, total = RoundStates(self._store, task.state_round), Trained()
        for id in task.devices:
            device = self._device(task, id)
            update = self._work.update(device, task, broadcast)
            trained = self._work.trained(device, update, task, states)
            if len(task.devices) == 1:
                total = trained
            else:
                add(total, trained)
        states.write()
        return total

    def _rows(self, task: Task, broadcast: Tensors) -> list[Row]:
        """Return a row for each device of a block; keep no state."""
        rows = []
        for id in task.devices:
            device = self._device(task, id)
            try:
                rows.append(self._work.evaluate(device, task, broadcast))
            finally:
                device.release()
        return rows

    def deployed(self, task: Task, broadcast: Tensors) -> Iterator[Device]:
        """Yield the devices of a block with their deployed models; each is released when the next one is yielded.

        Raises:
            SimulationError: The strategy failed on a device.
        """
        for id in task.devices:
            device = self._device(task, id)
            try:
                self._work.deploy(device, task, broadcast)
                yield device
            finally:
                device.release()

    def _device(self, task: Task, id: int) -> Device:
        """Return a device of a block with its committed state."""
        job, data = self._job, self._job.data
        examples = (Examples(data.x, data.y, rows) for rows in data.arrived(id, task.round)[:2])
        device = Device(
            job.model,
            *examples,
            seed=job.seed,
            id=id,
            round=task.round,
            plan=job.plan,
            pool=self._pool,
            metrics=job.own_metrics,
        )
        device.state = self._store.load(id, task.versions.get(id))
        return device

    def _failed(self, error: InvocationError | OutOfTime) -> Excluded:
        """Return why a device is excluded; drop the interpreters, which may be in an inconsistent state."""
        self._pool = self._new_pool()
        return Excluded(TIMED_OUT) if isinstance(error, OutOfTime) else litert_failure(error)

    def _new_pool(self) -> RuntimePool:
        job = self._job
        return RuntimePool(job.model, start=job.runtime, embeddings=self.embeddings)
