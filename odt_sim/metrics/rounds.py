"""What the rounds of a run say together: which of them is reported, and how many a target takes."""

import math
from collections.abc import Sequence

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.fleet import HIGHER_IS_BETTER, TASK_METRICS, Row


def reported_round(rounds: Sequence[Row], task: str) -> int | None:
    """Returns the round whose models are reported: the one that validates best; the test examples have no say in it.

    A round in which the figure is finite on more devices comes before one in which it is on fewer: what diverged must not
    win by dropping out of the mean. Then the better weighted mean over seen devices decides, then the earlier round.

    Args:
        rounds: Lines of `rounds.jsonl`, ascending, with `evaluation_columns` where an evaluation was due.
        task: A key of `TASK_METRICS`; its first metric decides.

    Returns:
        None where no round was evaluated on validation examples.
    """
    metric = TASK_METRICS[task][0]
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    figures = [(row["round"], row.get("validation_devices"), row.get(f"validation_{metric}")) for row in rounds]
    known = [(devices, sign * value, -round) for round, devices, value in figures if value is not None and devices]
    finite = [choice for choice in known if math.isfinite(choice[1])]
    return -max(finite)[2] if finite else None


def check_target(target: float | None, metric: str, name: str) -> None:
    """Checks that a metric can have a target's value; an accuracy is a fraction, not a percentage.

    Args:
        target: The value to reach; None for none.
        metric: A task's first metric.
        name: Where the target comes from, for the error.

    Raises:
        ConfigurationError: No mean of the metric has this value.
    """
    high = 1.0 if metric == "accuracy" else math.inf
    if target is not None and not (math.isfinite(target) and 0 <= target <= high):
        expected = "an accuracy from 0 to 1" if metric == "accuracy" else f"a value of {metric} at least 0"
        raise ConfigurationError(f"{name}: expected {expected}, found {target}")


def rounds_to_target(rounds: Sequence[Row], metric: str, target: float) -> int | None:
    """Returns the first evaluated round whose weighted mean over seen devices, on test examples, is `target` or better.

    Args:
        rounds: Lines of `rounds.jsonl`, ascending.
        metric: A key of `HIGHER_IS_BETTER`.
        target: In the metric's own unit.

    Returns:
        None where no round reaches it.
    """
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    known = ((row["round"], row[metric]) for row in rounds if row.get(metric) is not None)
    return next((round for round, value in known if sign * value >= sign * target), None)
