"""The costs of runs, by which plots and benchmarks compare configurations."""

from collections.abc import Callable
from dataclasses import dataclass

from odt_sim.persistence.run import Run
from odt_sim.report.comparison_columns import megabytes_moved
from odt_sim.report.phone_columns import hours


@dataclass(frozen=True)
class Cost:
    """A cost of runs.

    Attributes:
        key: Its name in file names.
        title: Its name in headings.
        axis: Its name and unit on an axis; small values get a smaller unit.
        of_run: Returns the cost of a complete run; None if unknown.
    """

    key: str
    title: str
    axis: str
    of_run: Callable[[Run], float | None]


def training_steps(run: Run) -> float | None:
    """Return the training steps of all rounds and of one deployment, which includes fine-tuning at deployment."""
    rounds, deployment = run.complete.train_calls, run.complete.deploy_train_calls
    return None if rounds is None or deployment is None else float(rounds + deployment)


def kilojoules(run: Run) -> float | None:
    """Return the energy of all rounds and of one deployment, with its fine-tuning, in thousands of joules."""
    rounds, deployment = run.complete.joules, run.complete.deploy_joules
    return None if rounds is None or deployment is None else (rounds + deployment) / 1e3


COSTS = (
    Cost("megabytes", "traffic", "MB sent and received over all rounds", megabytes_moved),
    Cost(
        "train_calls",
        "training steps",
        "training steps of all rounds and one deployment to all devices",
        training_steps,
    ),
    Cost("hours", "simulated time", "simulated hours over all rounds", hours),
    Cost("joules", "energy", "kJ of all rounds and one deployment to all devices", kilojoules),
)
