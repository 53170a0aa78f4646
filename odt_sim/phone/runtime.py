"""Requests to a phone that has a copy of the model, and checks of its replies."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.store.columns import Array
from odt_sim.device.batches import Batch
from odt_sim.device.training import GradientOffset, Step
from odt_sim.metrics.names import kind_of
from odt_sim.metrics.tasks import model_metrics
from odt_sim.model.contract.manifest import NO_LOSS
from odt_sim.model.contract.names import full
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.phone.frames import Message
from odt_sim.phone.phones import PhoneError, short_line

Ask = Callable[[Mapping[str, Any], Mapping[str, Array]], Message]
"""A function that sends a phone a header and tensors, and returns its reply."""

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


class PhoneRuntime:
    """A phone's copy of the model, with weights and optimizer slots, and its work on the phone's examples."""

    def __init__(self, model: TrainableModel, ask: Ask) -> None:
        """Set the model and the function that sends requests to the phone."""
        self.model, self._ask = model, ask

    def write(self, weights: Weights, slots: Sequence[Array]) -> None:
        """Set the weights and the optimizer's slots."""
        named = {f"s{i}": slot for i, slot in enumerate(slots)}
        self._ask({"do": "write"}, {"weights": weights.vector, **named})

    def read(self) -> tuple[Weights, list[Array]]:
        """Return the weights, read-only, and the optimizer's slots.

        Raises:
            PhoneError: They do not belong to this model.
        """
        reply = self._ask({"do": "read"}, {})
        vector = _checked(reply, "weights", (self.model.layout.size,), "float32")
        slots = [_checked(reply, f"s{i}", slot.shape, slot.dtype) for i, slot in enumerate(self.model.slots)]
        return Weights(self.model.layout, vector), slots

    def train(
        self, step: Step, batches: Sequence[Batch], learning_rate: float, offset: GradientOffset | None
    ) -> NDArray[np.float32]:
        """Run a step on each batch, at least one, and return the losses, `[steps]`.

        Args:
            step: The training signature.
            batches: Positions of the training examples as `x` and `y`.
            learning_rate: The step size.
            offset: The gradient offset; None for none.
        """
        header = {
            "do": "train",
            "signature": step.signature,
            "learning_rate": float(np.float32(learning_rate)),
            "mu": float(np.float32(offset.mu)) if offset else 0.0,
            "trained": [name in step.trained.slices for name in self.model.trainable_layout.names],
        }
        tensors: dict[str, Array] = {
            "rows": np.concatenate([batch.x for batch in batches]).astype(np.int32),
            "sample_weight": np.concatenate([batch.sample_weight for batch in batches]),
            "sizes": np.array([len(batch.x) for batch in batches], np.int32),
        }
        reply = self._ask(header, tensors | ({"b": offset.b.vector} if offset else {}))
        return _checked(reply, "losses", (len(batches),), "float32")

    def evaluate(
        self, split: str, examples: int, sent: Mapping[str, Array], *, only_loss: bool
    ) -> tuple[dict[str, float], int]:
        """Return metrics, and the number of batches that were evaluated.

        Args:
            split: `train`, `validation` or `test`, or `given` for the examples `x` and `y` that are sent.
            examples: The number of examples of the split.
            sent: The examples to send.
            only_loss: Whether to request only the loss.

        Raises:
            PhoneError: The reply has no valid metrics for this model and split.
        """
        reply = self._ask({"do": "evaluate", "split": split, "only_loss": only_loss}, sent)
        calls = reply.header.get("calls")
        if type(calls) is not int or not 1 <= calls <= examples:
            raise PhoneError("phone sent a wrong number of batches for its metrics")
        return checked_figures(reply.header.get("figures"), self.model, examples, only_loss=only_loss), calls


def _checked(reply: Message, name: str, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a tensor of a reply.

    Raises:
        PhoneError: It is missing, or its shape or dtype is wrong.
    """
    tensor = reply.tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype != np.dtype(dtype):
        what = "nothing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
        raise PhoneError(f"phone sent {name} of another model: expected {dtype} {list(shape)}, found {what}")
    return tensor


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
    outputs = {output.name: output.loss in NEVER_NEGATIVE for output in model.outputs}
    positive = {full("loss", name) for name, never_negative in outputs.items() if never_negative}
    if all(outputs.values()) and all(output.loss_weight >= 0 for output in model.outputs):
        positive.add("loss")
    return {name: _value(figures, name, name in positive) for name in names if name in figures} | {"examples": examples}


def _value(figures: Mapping[str, Any], name: str, positive: bool) -> float:
    value = figures[name]
    if value is None:
        return math.nan
    kind = kind_of(name)
    least, most, expected = -LARGEST, LARGEST, "a finite number"
    if kind.percent:
        least, most, expected = 0.0, 1.0, "0 to 1"
    elif kind.bounded:
        most, expected = 1.0, "at most 1"
    if positive:
        least, expected = -ROUNDING, "a finite number of at least 0"
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise PhoneError(_wrong(name, f"{expected} or null", figures))
    return float(value)


def _wrong(name: str, expected: str, figures: Mapping[str, Any]) -> str:
    """Return the reason for rejecting a metric, whose value may be of any size and type."""
    value = figures.get(name)
    text = str(value)[:20] if isinstance(value, int | float) else "null" if value is None else type(value).__name__
    return f"phone sent wrong metrics: {name}: expected {expected}, found {text if name in figures else 'nothing'}"
