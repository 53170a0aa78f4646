"""Checks of the metrics that a phone computes, before they are recorded."""

import math
import sys
from collections.abc import Mapping
from typing import Any

from odt_sim.metrics.names import Kind, kind_of
from odt_sim.metrics.tasks import model_metrics
from odt_sim.model.manifest import NO_LOSS
from odt_sim.model.names import full
from odt_sim.model.trainable import TrainableModel
from odt_sim.phone.phones import PhoneError, short_line

LARGEST = sys.float_info.max
NEVER_NEGATIVE = (
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "binary_crossentropy",
    "mean_squared_error",
    "mean_absolute_error",
    "huber",
)
"""Losses that are negative only for targets out of range."""
ROUNDING = 1e-6
"""Tolerance below zero for losses that cannot be negative."""


def checked_figures(
    figures: object, model: TrainableModel, examples: int, *, only_loss: bool = False
) -> dict[str, float]:
    """Check the metrics of a phone and return them in the order of the model's metrics; null (undefined) becomes NaN.

    Args:
        figures: The metrics that the phone sent.
        model: The model.
        examples: The number of examples that the phone evaluated.
        only_loss: Whether only the loss was requested, without the number of examples.

    Raises:
        PhoneError: They do not fit the model or the number of examples.
    """
    lacks_loss = not only_loss and any(
        output.mask or output.ignore_class is not None or output.loss == NO_LOSS for output in model.outputs
    )  # also if no position counts
    if not isinstance(figures, dict) or not ("loss" in figures or lacks_loss):
        raise PhoneError("phone sent no metrics")
    if figures.get("examples", examples if only_loss else None) != examples:
        raise PhoneError(_wrong("examples", str(examples), figures))
    names = model_metrics(model)
    if unknown := [name for name in figures if name not in (*names, "examples")]:
        raise PhoneError(f"phone sent wrong metrics: expected {', '.join(names)}, found {short_line(unknown[0])}")
    positive = _never_negative(model)
    return {name: _value(figures, name, name in positive) for name in names if name in figures} | {"examples": examples}


def _never_negative(model: TrainableModel) -> set[str]:
    """Return the names of the losses that cannot be negative."""
    own = {output.name: output.loss in NEVER_NEGATIVE for output in model.outputs}
    whole = {"loss"} if all(own.values()) and all(output.loss_weight >= 0 for output in model.outputs) else set()
    return whole | {full("loss", name) for name, positive in own.items() if positive}


def _value(figures: Mapping[str, Any], name: str, positive: bool) -> float:
    value = figures[name]
    if value is None:
        return math.nan
    least, most, expected = _limits(kind_of(name))
    if positive:
        least, expected = -ROUNDING, "a finite number of at least 0"
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise PhoneError(_wrong(name, f"{expected} or null", figures))
    return float(value)


def _limits(kind: Kind) -> tuple[float, float, str]:
    """Return the minimum and maximum of a kind of metric, and a description of the range."""
    if kind.percent:
        return 0.0, 1.0, "0 to 1"
    return (-LARGEST, 1.0, "at most 1") if kind.bounded else (-LARGEST, LARGEST, "a finite number")


def _wrong(name: str, expected: str, figures: Mapping[str, Any]) -> str:
    """Return the reason for rejecting a metric, whose value may be of any size and type."""
    value = figures.get(name)
    found = str(value)[:20] if isinstance(value, int | float) else "null" if value is None else type(value).__name__
    return f"phone sent wrong metrics: {name}: expected {expected}, found {found if name in figures else 'nothing'}"
