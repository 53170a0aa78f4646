"""The backend that runs all devices in this process, one after another: for debugging and small fleets."""

from collections.abc import Callable
from typing import Any

from odt_sim.device.engines import RuntimeChoice, RuntimeName
from odt_sim.errors import SimulationError
from odt_sim.model.tensors import read_only
from odt_sim.persistence.storage import check_writable
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.executors.worker import Worker
from odt_sim.simulation.run.messages import Assignment
from odt_sim.simulation.run.time_limit import check_interruptible


class SerialBackend(Executor):
    """A backend with one worker in this process."""

    def __init__(self, runtime: RuntimeName = "litert", runtime_python: str | None = None) -> None:
        """Check the settings; start nothing.

        Args:
            runtime: The runtime of the model's file: `litert`, LiteRT's interpreter; `compiled`, LiteRT's compiled
                model; `flex`, TensorFlow's interpreter with Flex ops, in a separate process.
            runtime_python: For `flex`, the Python of an environment with TensorFlow 2.19; None for the variable
                `ODT_SIM_FLEX_PYTHON`.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        self.runtime = RuntimeChoice(runtime, runtime_python)
        self._worker: Worker | None = None

    def open(self, job: Job) -> None:
        """Make the worker.

        Raises:
            FileError: The run's storage cannot be written.
            ConfigurationError: Devices have a time limit, and this is not the main thread.
        """
        check_writable(job.storage)  # now, not after the first round
        check_interruptible(job.fleet.timeout)
        self._worker = Worker(job)

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run blocks in order; see `Executor`."""
        (tasks, messages), worker = assignment, self.worker
        received = read_only(messages.broadcast)
        for task in tasks:
            take(worker.run(messages.addressed(task), received))

    def close(self) -> None:
        """Drop the worker and its interpreters."""
        self._worker = None

    @property
    def worker(self) -> Worker:
        """The worker of the open job.

        Raises:
            SimulationError: No job is open.
        """
        if self._worker is None:
            raise SimulationError("backend serial: no job is open; call open first")
        return self._worker
