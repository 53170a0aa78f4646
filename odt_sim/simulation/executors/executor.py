"""The interface between the coordinator and the executors, which run devices."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.messages import Assignment


@runtime_checkable
class Executor(Protocol):
    """The interface of a backend, which runs the blocks of a job.

    Results are the same on every backend: they arrive in the order of the blocks. `tests/executor_conformance.py` has the
    tests that every executor passes.

    Attributes:
        runtime: What runs the model's signatures on a device.
        devices_leave: Whether devices may be gone after the run; resuming a complete run then keeps its results.
        own_examples: Whether devices have their own examples instead of the job's.
        choice: Where devices run, if the executor chooses, for the summary; else None.
    """

    runtime: RuntimeChoice = LITERT
    devices_leave: bool = False
    own_examples: bool = False
    choice: str | None = None

    def start(self) -> None:
        """Start everything that does not depend on a job; may be called in a thread, and more than once."""
        return

    def open(self, job: Job) -> None:
        """Send a job to the workers.

        Raises:
            SimulationError: Workers cannot be started.
        """

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run blocks, and pass on the result of each: a `Trained`, or the rows of its devices if they are evaluated.

        Args:
            assignment: The blocks, all of one kind; `messages.addressed` adds the messages for its devices to a block.
            take: Takes the results, in the order of the blocks.

        Raises:
            SimulationError: A block fails, or no job is open.
        """

    def close(self) -> None:
        """End the job's workers."""
