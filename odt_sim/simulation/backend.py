"""The interface between the coordinator and the backends, which run devices."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.messages import Messages


@runtime_checkable
class Backend(Protocol):
    """The interface of a backend, which runs the blocks of a job.

    Results come in the order of the tasks and are the same on every backend. `train` and `evaluate` may begin before
    their results are requested, and the next round's `train` may be called before these have ended.

    A backend may have these attributes:
        `runtime`: An `odt_sim.device.engines.RuntimeChoice`, if devices do not run in LiteRT's interpreter.
        `devices_leave`: True if devices may be gone after the run; resuming a complete run then keeps its results.
        `own_examples`: True if devices have their own examples instead of the job's.
        `choice`: Where devices ran, if the backend chooses; the summary records it.
        `drop`: A method that drops the blocks of a round that a stopped run no longer needs.
    """

    def start(self) -> None:
        """Start everything that does not depend on a job; may be called in a thread, and more than once."""

    def open(self, job: Job) -> None:
        """Send a job to the workers.

        Raises:
            SimulationError: Workers cannot be started.
        """

    def train(self, tasks: Sequence[Task], messages: Messages) -> Iterator[Trained]:
        """Train blocks, and yield their results in order; the sum of the first blocks may be one result.

        Args:
            tasks: The blocks.
            messages: What devices receive; `messages.addressed` adds the messages for its devices to a block.

        Raises:
            SimulationError: A block fails.
        """

    def evaluate(self, tasks: Sequence[Task], messages: Messages) -> Iterator[list[Row]]:
        """Evaluate blocks.

        Raises:
            SimulationError: A block fails.
        """

    def close(self) -> None:
        """End the job's workers."""
