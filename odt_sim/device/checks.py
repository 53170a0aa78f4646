"""Checks of the arguments of a device."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from odt_sim._support.checks import shown
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import ConfigurationError, DataError
from odt_sim.metrics.own import OwnMetric
from odt_sim.model.trainable import TrainableModel

WHOLE = (int, np.integer)


def check_model(model: Any, id: int) -> None:
    """Check that a model is loaded."""
    if not isinstance(model, TrainableModel):
        raise ConfigurationError(
            f"device {id}: expected a TrainableModel, found {type(model).__name__}; load it with TrainableModel.load(path)"
        )


def check_numbers(seed: int, id: int, round: int) -> None:
    """Check that the numbers that determine a device's randomness are whole and at least 0."""
    for number in (seed, id, round):
        if not isinstance(number, WHOLE) or number < 0:
            raise ConfigurationError(
                f"device {id}: expected whole numbers of at least 0 as seed, id and round, found {seed!r}, {id!r}, "
                f"{round!r}"
            )


def check_plan(plan: Any, id: int) -> None:
    """Check that a plan is an instance."""
    if not isinstance(plan, TrainingPlan):
        raise ConfigurationError(
            f"device {id}: plan: expected a TrainingPlan, found {type(plan).__name__}; pass an instance, such as "
            "TrainingPlan(epochs=2)"
        )


def checked_pair(given: Any, what: str) -> tuple[Any, Any]:
    """Return the examples `(x, y)` of a split, such as `device 3, test`."""
    if not isinstance(given, Sequence) or len(given) != 2:
        count = f" of {len(given)}" if isinstance(given, Sequence) else ""
        found = f"{type(given).__name__}{count}"
        raise DataError(f"{what}: expected the pair (x, y), found {found}; pass inputs and targets")
    return given[0], given[1]


def check_split(split: Any, splits: Collection[str], id: int) -> None:
    """Check that a split has one of the known names."""
    if not isinstance(split, str):
        raise DataError(
            f"device {id}: expected the name of a split, one of {', '.join(splits)}, found {type(split).__name__}; "
            "for other examples, create another Device"
        )
    if split not in splits:
        raise DataError(f"device {id}: unknown split {split!r}; expected one of {', '.join(splits)}")


def check_metrics(metrics: Any, id: int) -> None:
    """Check that a user's metrics are a list of them."""
    listed = isinstance(metrics, (list, tuple))  # an abstract class takes longer, and each device asks
    wrong = [metric for metric in metrics if not isinstance(metric, OwnMetric)] if listed else [metrics]
    if wrong:
        raise ConfigurationError(
            f"device {id}: metrics: expected a list of OwnMetric, found {shown(wrong[0])}; create it with "
            "odt_sim.metrics.own.own_metrics([function])"
        )
