"""The backend that runs everything in this process, one device after the other: the debugger."""

from collections.abc import Iterator, Sequence

from odt_sim.errors import SimulationError
from odt_sim.persistence.storage import check_writable
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.time_limit import check_interruptible
from odt_sim.simulation.worker import Worker
from odt_sim.strategies.base import Tensors, read_only


class SerialBackend:
    """One worker in this process."""

    def __init__(self) -> None:
        """Has no worker yet."""
        self._worker: Worker | None = None

    def start(self) -> None:
        """Does nothing."""

    def open(self, job: Job) -> None:
        """Makes the worker.

        Raises:
            FileError: The run's storage cannot be written: better told now than after the first round.
            ConfigurationError: Devices' time is limited, and this thread cannot be interrupted.
        """
        check_writable(job.storage)
        check_interruptible(job.fleet.timeout)
        self._worker = Worker(job)

    def train(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[Trained]:
        """Trains blocks in order."""
        worker = self._opened()
        received = read_only(broadcast)
        return (worker.train(task, received) for task in tasks)

    def evaluate(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[list[Row]]:
        """Evaluates blocks in order."""
        worker = self._opened()
        received = read_only(broadcast)
        return (worker.evaluate(task, received) for task in tasks)

    def close(self) -> None:
        """Drops the worker and its interpreters."""
        self._worker = None

    def _opened(self) -> Worker:
        if self._worker is None:
            raise SimulationError("backend serial: no job is open; call open first")
        return self._worker
