"""Results over the rounds of a run: the round to report, and the number of rounds to a target."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.fleet import Row
from odt_sim.metrics.names import higher_is_better, is_own, is_period, kind_of, period_of


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


FIGURES = ("now", "average", "plasticity", "forgetting")
"""What training over time keeps and loses, where `a[t, j]` is the metric on the test examples of period j at the end of
period t, and T the last period so far:

| figure | formula |
|---|---|
| `now` | `a[T, T]` |
| `average` | mean over j of `a[T, j]` |
| `plasticity` | mean over j of `a[j, j]`: how well each period was learned when it was new |
| `forgetting` | mean over j < T of `best of a[t, j], t < T, - a[T, j]` |

Lopez-Paz and Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017 (average); Chaudhry et al.,
"Riemannian walk for incremental learning", ECCV 2018 (forgetting).
"""


def by_period(rounds: Sequence[Mapping[str, Any]], metric: str) -> NDArray[np.float64]:
    """Return a table `[periods, periods]` whose entry `[t, j]` is the metric on period j at the end of period t.

    A round belongs to the last period for which it has a column; the last evaluated round of a period counts. NaN means
    unknown or undefined.

    Args:
        rounds: The lines of `rounds.jsonl`, ascending.
        metric: The first metric of the run's model.
    """
    found = [{period_of(name): row[name] for name in row if is_period(name, metric)} for row in rounds]
    periods = max((max(own) for own in found if own), default=0)
    table = np.full((periods, periods), np.nan)
    for own in found:
        for period, value in own.items():
            table[max(own) - 1, period - 1] = np.nan if value is None else value
    return table


def continual_figures(rounds: Sequence[Mapping[str, Any]], metric: str) -> dict[str, float] | None:
    """Return the `FIGURES` of a run; None if its examples do not arrive over time.

    Figures that are undefined in all periods are absent; `forgetting` needs two periods.

    Args:
        rounds: The lines of `rounds.jsonl`, ascending.
        metric: The first metric of the run's model.
    """
    table = by_period(rounds, metric)
    if not table.size:
        return None
    last, new = table[-1], np.diag(table)
    figures = {"now": new[-1], "average": _mean(last), "plasticity": _mean(new)}
    earlier = table[:-1, :-1] if higher_is_better(metric) else -table[:-1, :-1]
    if earlier.size:
        lost = np.fmax.reduce(earlier, axis=0) - (last[:-1] if higher_is_better(metric) else -last[:-1])
        figures["forgetting"] = _mean(lost)
    return {name: float(value) for name, value in figures.items() if np.isfinite(value)}


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean of the known values; NaN without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
