"""The figures of one device, from the outputs of its model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ModelError
from odt_sim.metrics.scores import auc, balanced_accuracy, r2
from odt_sim.model.manifest import REGRESSIONS

Array = NDArray[Any]

_EPSILON = 1e-7  # as in Keras: a probability of zero has a finite loss


def log_softmax(logits: Array) -> Array:
    """Return the logarithm of the softmax over the last axis, in float64."""
    with np.errstate(invalid="ignore"):  # infinite logits of a diverged model give NaN
        shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def example_losses(outputs: Array, y: Array, loss: str, from_logits: bool, delta: float = 1.0) -> Array:
    """Return each example's loss as Keras defines it by default, without label smoothing.

    Args:
        outputs: `[examples, ...]` float32, the outputs of `infer`.
        y: `[examples, ...]` labels, one per row of the outputs, or targets of the outputs' shape.
        loss: One of `odt_sim.model.manifest.LOSSES`.
        from_logits: Whether the outputs are logits rather than probabilities.
        delta: The error at which Huber's loss turns from quadratic to linear.

    Returns:
        `[examples]` float64.
    """
    if loss in REGRESSIONS:
        losses = _regression_losses(
            outputs.astype(np.float64), y.reshape(outputs.shape).astype(np.float64), loss, delta
        )
    elif loss == "binary_crossentropy":
        losses = _binary_losses(outputs.astype(np.float64), y.reshape(outputs.shape), from_logits)
    elif loss == "kl_divergence":
        target = np.clip(_one_hot(outputs, y).astype(np.float64), _EPSILON, 1.0)
        losses = (target * np.log(target / np.clip(outputs, _EPSILON, 1.0))).sum(axis=-1)
    else:
        logarithms = log_softmax(outputs) if from_logits else _log_probabilities(outputs)
        if loss == "categorical_crossentropy":
            losses = -(_one_hot(outputs, y) * logarithms).sum(axis=-1)
        else:
            losses = -np.take_along_axis(logarithms, _labels(outputs, y)[..., np.newaxis], axis=-1)
    return np.asarray(losses.reshape(len(y), -1).mean(axis=1))


def _regression_losses(outputs: Array, y: Array, loss: str, delta: float) -> Array:
    if loss == "cosine_similarity":
        lengths = [np.maximum(np.linalg.norm(v, axis=-1), _EPSILON) for v in (outputs, y)]
        return np.asarray(-(outputs * y).sum(axis=-1) / (lengths[0] * lengths[1]))
    errors = np.abs(outputs - y)
    if loss == "huber":
        return np.asarray(np.where(errors <= delta, 0.5 * errors**2, delta * errors - 0.5 * delta**2))
    return np.asarray(errors if loss == "mean_absolute_error" else errors**2)


def _binary_losses(outputs: Array, y: Array, from_logits: bool) -> Array:
    if not from_logits:
        return np.asarray(-y * _log_probabilities(outputs) - (1 - y) * _log_probabilities(1.0 - outputs))
    return np.asarray(np.maximum(outputs, 0.0) - outputs * y + np.log1p(np.exp(-np.abs(outputs))))


def mean_loss(outputs: Array, y: Array, loss: str | None, from_logits: bool, delta: float = 1.0) -> float:
    """Return the mean of `example_losses`.

    Raises:
        ModelError: The loss is unknown.
    """
    return float(example_losses(outputs, y, _checked(loss), from_logits, delta).mean())


def figures(outputs: Array, y: Array, loss: str | None, from_logits: bool, delta: float = 1.0) -> dict[str, float]:
    """Return the figures of one device.

    Args:
        outputs: `[examples, ...]` float32, the outputs of `infer`; at least one example.
        y: The labels or targets.
        loss: The loss of the exported model.
        from_logits: Whether the outputs are logits rather than probabilities.
        delta: The error at which Huber's loss turns from quadratic to linear.

    Returns:
        `accuracy` (0..1), `loss`, `examples`, `balanced_accuracy` and `auc` of a classifier; `mse`, `mae`, `loss`, `examples`
        and `r2` of a regression. Undefined figures are absent: `auc` of one class, `r2` of equal targets.

    Raises:
        ModelError: The loss is unknown.
    """
    mean, loss = mean_loss(outputs, y, loss, from_logits, delta), _checked(loss)
    known, optional = (
        _regression(outputs, y) if loss in REGRESSIONS else _classification(outputs, y, loss, from_logits=from_logits)
    )
    return {
        **known,
        "loss": mean,
        "examples": len(y),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _checked(loss: str | None) -> str:
    if loss is None:
        raise ModelError(
            "the model has no manifest, so its loss is unknown; pass it: TrainableModel.load(path, loss=...)"
        )
    return loss


Figures = tuple[dict[str, float], dict[str, float | None]]
"""Figures that are always defined, and figures that may be None."""


def _regression(outputs: Array, y: Array) -> Figures:
    y = y.reshape(outputs.shape)
    errors = outputs.astype(np.float64) - y
    return {"mse": float((errors**2).mean()), "mae": float(np.abs(errors).mean())}, {"r2": r2(outputs, y)}


def _classification(outputs: Array, y: Array, loss: str, *, from_logits: bool) -> Figures:
    labels: Array
    if loss == "binary_crossentropy":
        labels = positive = y.reshape(outputs.shape) > 0.5
        right = ((outputs > (0.0 if from_logits else 0.5)) == positive) & ~np.isnan(outputs)
        scores = outputs
    else:
        hot = loss in ("categorical_crossentropy", "kl_divergence") and y.ndim == outputs.ndim
        labels = y.argmax(axis=-1) if hot else _labels(outputs, y)
        right = (outputs.argmax(axis=-1) == labels) & ~np.isnan(outputs).any(axis=-1)  # NaN is no prediction
        scores = log_softmax(outputs) if from_logits else outputs  # logits of different examples have no common scale
        positive = labels[..., np.newaxis] == np.arange(outputs.shape[-1])
    classes = outputs.shape[-1]
    area = auc(scores.reshape(-1, classes), positive.reshape(-1, classes))
    return {"accuracy": float(right.mean())}, {"balanced_accuracy": balanced_accuracy(right, labels), "auc": area}


def _labels(outputs: Array, y: Array) -> NDArray[np.int64]:
    """Return a label per row of the outputs, for labels `[examples]`, `[examples, 1]` and sequences."""
    return y.reshape(outputs.shape[:-1]).astype(np.int64)


def _one_hot(outputs: Array, y: Array) -> Array:
    """Return a probability per output; labels become one-hot rows."""
    return y if y.ndim == outputs.ndim else np.eye(outputs.shape[-1], dtype=np.float32)[_labels(outputs, y)]


def _log_probabilities(outputs: Array) -> Array:
    return np.asarray(np.log(np.clip(outputs.astype(np.float64), _EPSILON, 1.0 - _EPSILON)))
