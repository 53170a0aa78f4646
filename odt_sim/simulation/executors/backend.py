"""The interface between the coordinator and the backends, which run devices."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.simulation.executors.job import Job, Trained
from odt_sim.simulation.run.evaluation import Row
from odt_sim.simulation.run.messages import Assignment


@runtime_checkable
class Backend(Protocol):
    """The interface of a backend, which runs the blocks of a job.

    Results are the same on every backend: sums are added in the order of the blocks.

    Attributes:
        runtime: What runs the model's signatures on a device.
        devices_leave: Whether devices may be gone after the run; resuming a complete run then keeps its results.
        own_examples: Whether devices have their own examples instead of the job's.
        choice: Where devices run, if the backend chooses, for the summary; else None.
    """

    runtime: RuntimeChoice = LITERT
    devices_leave: bool = False
    own_examples: bool = False
    choice: str | None = None

    def start(self) -> None:
        """Start everything that does not depend on a job; may be called in a thread, and more than once."""

    def open(self, job: Job) -> None:
        """Send a job to the workers.

        Raises:
            SimulationError: Workers cannot be started.
        """

    def train(self, assignments: Sequence[Assignment]) -> Trained:
        """Train blocks, and return their sum, added block by block in the order of the tasks.

        Args:
            assignments: The blocks; `messages.addressed` adds the messages for its devices to a block.

        Raises:
            SimulationError: A block fails.
        """

    def evaluate(self, assignment: Assignment) -> list[Row]:
        """Evaluate blocks, and return the rows of their devices, in the order of the tasks.

        Raises:
            SimulationError: A block fails.
        """

    def close(self) -> None:
        """End the job's workers."""
