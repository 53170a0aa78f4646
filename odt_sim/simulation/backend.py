"""The interface between the coordinator and what runs devices."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.messages import Messages


@runtime_checkable
class Backend(Protocol):
    """Runs the blocks of a job; results come in the order of the tasks and are the same on every backend.

    A backend whose devices do not run in LiteRT's interpreter has an attribute `runtime`, a
    `odt_sim.device.engines.RuntimeChoice`. One whose devices may be gone after the run has `devices_leave = True`: a complete
    run that is resumed then keeps its results; with `own_examples = True`, they have examples of their own in place of the
    job's. One that chooses where devices run says so in an attribute `choice`, which the summary records.
    `train` and `evaluate` may begin before their results are asked for, and the next round's `train` may follow meanwhile.
    """

    def start(self) -> None:
        """Prepare what does not depend on a job; may be called in a thread, and more than once."""

    def open(self, job: Job) -> None:
        """Bring a job to the workers.

        Raises:
            SimulationError: Workers cannot be started.
        """

    def train(self, tasks: Sequence[Task], messages: Messages) -> Iterator[Trained]:
        """Train blocks, and yield their results in order; of the first ones, their sum may be a single result.

        Args:
            tasks: The blocks.
            messages: What devices receive; a block carries those for its devices, of `messages.addressed`.

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
