"""One device's figures, from the outputs of its model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ModelError

Array = NDArray[Any]

_SMALLEST_PROBABILITY = 1e-7  # Keras' epsilon: a probability of zero has a large loss, not an infinite one


def log_softmax(logits: Array) -> Array:
    """Returns the logarithm of the softmax over the last axis, in float64."""
    with np.errstate(invalid="ignore"):  # of a model that diverged: infinite logits give NaN
        shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def example_losses(outputs: Array, y: Array, loss: str, from_logits: bool) -> Array:
    """Returns each example's loss, as Keras defines it.

    Args:
        outputs: `[examples, ...]` float32, what `infer` gave.
        y: `[examples, ...]` labels, one for each row of the outputs, or targets of the outputs' shape.
        loss: One of `odt_sim.model.manifest.LOSSES`.
        from_logits: Whether the outputs are logits rather than probabilities.

    Returns:
        `[examples]` float64.
    """
    if loss == "mean_squared_error":
        losses = (outputs.astype(np.float64) - y.reshape(outputs.shape)) ** 2
    else:
        logarithms = log_softmax(outputs) if from_logits else _log_probabilities(outputs)
        if loss == "categorical_crossentropy":
            losses = -(y * logarithms).sum(axis=-1)
        else:
            losses = -np.take_along_axis(logarithms, _labels(outputs, y)[..., np.newaxis], axis=-1)
    return np.asarray(losses.reshape(len(y), -1).mean(axis=1))


def figures(outputs: Array, y: Array, loss: str | None, from_logits: bool) -> dict[str, float]:
    """Returns one device's figures.

    Args:
        outputs: `[examples, ...]` float32, what `infer` gave; at least one example.
        y: The labels or targets.
        loss: The loss the model was exported with.
        from_logits: Whether the outputs are logits rather than probabilities.

    Returns:
        `accuracy` (0..1), `loss` and `examples` of a classifier; `mse`, `mae`, `loss` and `examples` of a regression.

    Raises:
        ModelError: The loss is not known.
    """
    if loss is None:
        raise ModelError(
            "the model has no manifest, so its loss is not known; give it: TrainableModel.load(path, loss=...)"
        )
    mean_loss = float(example_losses(outputs, y, loss, from_logits).mean())
    if loss == "mean_squared_error":
        errors = outputs.astype(np.float64) - y.reshape(outputs.shape)
        own = {"mse": float((errors**2).mean()), "mae": float(np.abs(errors).mean())}
    else:
        labels = y.argmax(axis=-1) if loss == "categorical_crossentropy" else _labels(outputs, y)
        right = (outputs.argmax(axis=-1) == labels) & ~np.isnan(outputs).any(axis=-1)  # NaN predicts nothing
        own = {"accuracy": float(right.mean())}
    return {**own, "loss": mean_loss, "examples": len(y)}


def _labels(outputs: Array, y: Array) -> NDArray[np.int64]:
    """Returns a label for each row of the outputs: `[examples]`, `[examples, 1]` and sequences alike."""
    return y.reshape(outputs.shape[:-1]).astype(np.int64)


def _log_probabilities(outputs: Array) -> Array:
    return np.asarray(np.log(np.clip(outputs.astype(np.float64), _SMALLEST_PROBABILITY, 1.0 - _SMALLEST_PROBABILITY)))
