"""Results over the rounds of a run: the round to report, and the number of rounds to a target."""

import math
from collections.abc import Sequence

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.fleet import Row
from odt_sim.metrics.names import higher_is_better, is_own, kind_of


def reported_round(rounds: Sequence[Row], metric: str) -> int | None:
    """Return the round to report: the round with the best validation result, regardless of test results.

    A larger number of devices with a finite value comes first, so that a round does not win because diverged devices
    drop out of its mean. Then the better weighted mean over the seen devices decides, then the earlier round.

    Args:
        rounds: Lines of `rounds.jsonl`, ascending, with `evaluation_columns` if evaluated.
        metric: The metric that decides, the first of the run's model.

    Returns:
        None if no round was evaluated on validation examples.
    """
    sign = 1 if higher_is_better(metric) else -1
    figures = [(row["round"], row.get("validation_devices"), row.get(f"validation_{metric}")) for row in rounds]
    known = [(devices, sign * value, -round) for round, devices, value in figures if value is not None and devices]
    finite = [candidate for candidate in known if math.isfinite(candidate[1])]
    return -max(finite)[2] if finite else None


IMPROVEMENT = 0.01  # relative; a smaller improvement is not worth more rounds
FEWEST_EVALUATIONS = 4


def still_improves(rounds: Sequence[Row], metric: str) -> bool | None:
    """Return whether a run's validation metric was still improving when the run ended.

    This is the case if the best value in the last quarter of its evaluations is more than 1 % better than the best
    earlier value, for example above 0.808 after 0.800.

    Args:
        rounds: Lines of `rounds.jsonl`, ascending.
        metric: The first metric of the run.

    Returns:
        None with fewer than 4 evaluations on validation examples.
    """
    sign = 1 if higher_is_better(metric) else -1
    known = (row.get(f"validation_{metric}") for row in rounds)
    values = [sign * value for value in known if value is not None and math.isfinite(value)]
    if len(values) < FEWEST_EVALUATIONS:
        return None
    last = max(1, len(values) // 4)
    before, after = max(values[:-last]), max(values[-last:])
    return bool(after - before > IMPROVEMENT * abs(before))


def check_target(target: float | None, metric: str, name: str) -> None:
    """Check that a target is in the range of a metric; an accuracy is a fraction, not a percentage.

    Args:
        target: The value to reach; None for none.
        metric: The first metric of the run's model.
        name: The setting, for the error.

    Raises:
        ConfigurationError: The target is out of range.
    """
    if is_own(metric) and target is not None and math.isfinite(target):
        return
    bounded = kind_of(metric).bounded
    if target is not None and not (math.isfinite(target) and 0 <= target <= (1.0 if bounded else math.inf)):
        article = "an" if metric[0] in "aeiou" else "a"
        expected = f"{article} {metric} from 0 to 1" if bounded else f"a value of {metric} at least 0"
        raise ConfigurationError(f"{name}: expected {expected}, found {target}")


def rounds_to_target(rounds: Sequence[Row], metric: str, target: float) -> int | None:
    """Return the first evaluated round whose weighted mean on test examples reaches `target`; None if no round does.

    Args:
        rounds: Lines of `rounds.jsonl`, ascending.
        metric: A metric's name.
        target: The value to reach, in the metric's unit.
    """
    sign = 1 if higher_is_better(metric) else -1
    known = ((row["round"], row[metric]) for row in rounds if row.get(metric) is not None)
    return next((round for round, value in known if sign * value >= sign * target), None)
