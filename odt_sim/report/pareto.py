"""What strategies reach for what they cost: points, and those of them that nothing beats in both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odt_sim.metrics.fleet import HIGHER_IS_BETTER
from odt_sim.persistence.run import Run
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.conditions import same_conditions
from odt_sim.report.values import Spread, megabytes_moved, over_seeds


@dataclass(frozen=True)
class Cost:
    """Something of which less is better.

    Attributes:
        key: Its name in file names.
        title: What it is, for headings.
        axis: What it is, with its unit, for an axis.
        of_run: Returns a complete run's; None where that is not known.
    """

    key: str
    title: str
    axis: str
    of_run: Callable[[Run], float | None]


@dataclass(frozen=True)
class Point:
    """A configuration: what it costs, and the weighted mean of the task's first metric over seen devices."""

    row: Configuration
    cost: Spread
    score: Spread


def _train_calls(run: Run) -> float | None:
    in_rounds, deployed = run.complete.get("train_calls"), run.complete.get("deploy_train_calls")
    return None if in_rounds is None or deployed is None else float(in_rounds + deployed)


COSTS = (
    Cost(
        "megabytes",
        "megabytes moved",
        "MB moved, down and up, over all rounds",
        lambda run: megabytes_moved(run.complete),
    ),
    Cost(
        "train_calls",
        "training steps",
        "train calls, over all rounds and in one deployment to all devices",
        _train_calls,
    ),
)


def points(comparison: Comparison, cost: Cost) -> list[Point]:
    """Returns the configurations of which cost and score are known."""
    found = []
    for row in comparison.rows:
        spent, score = over_seeds([cost.of_run(run) for run in row.runs]), row.values["weighted_mean"]
        if spent and score:
            found.append(Point(row, spent, score))
    return found


def fronts(drawn: Sequence[Point], metric: str) -> list[list[Point]]:
    """Returns the Pareto front of the points of each kind of conditions, by ascending cost.

    A point is on it where none of the same data, partition and fleet is at least as good in both, score and cost, and better
    in one of them.
    """
    groups: dict[object, list[Point]] = {}
    for point in drawn:
        groups.setdefault(same_conditions(point.row.runs[0]), []).append(point)
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    return [
        sorted(
            (point for point in group if not any(_beats(other, point, sign) for other in group)),
            key=lambda point: (point.cost.mean, sign * point.score.mean),
        )
        for group in groups.values()
    ]


def _beats(one: Point, other: Point, sign: int) -> bool:
    mine, theirs = ((point.cost.mean, -sign * point.score.mean) for point in (one, other))
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]
