"""The losses of examples, for losses with a formula on the host; a file with another loss has the signature `loss`."""

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ModelError
from odt_sim.model.contract.manifest import LOSSES, NO_LOSS, REGRESSIONS
from odt_sim.model.weights import Array

ONLY_IN_STEPS = (
    "the model computes its loss only in training steps; export it with a loss, or with a compute_loss of its class"
)
_EPSILON = 1e-7  # as in Keras: a probability of zero has a finite loss
_MOST_NUMBERS = 1 << 18  # logits that are converted to float64 at once


def log_softmax(logits: Array) -> Array:
    """Return the logarithm of the softmax over the last axis, in float64."""
    maxima, logarithms = normalizers(logits)
    with np.errstate(invalid="ignore"):
        shifted = logits - maxima
        shifted -= logarithms
    return shifted


def normalizers(logits: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the maximum of the last axis, and the logarithm of the sum of the exponentials of logits minus it.

    Both are float64 `[..., 1]`. Logits are converted a few rows at a time: those of a language model are large.
    """
    rows = logits.reshape(-1, logits.shape[-1])
    maxima, logarithms = np.empty((len(rows), 1)), np.empty((len(rows), 1))
    most = max(_MOST_NUMBERS // rows.shape[1], 1)
    with np.errstate(invalid="ignore"):  # infinite logits of a diverged model give NaN
        for start in range(0, len(rows), most):
            block = slice(start, start + most)
            maxima[block] = rows[block].max(axis=-1, keepdims=True)
            logarithms[block] = np.log(np.exp(rows[block] - maxima[block]).sum(axis=-1, keepdims=True))
    shape = (*logits.shape[:-1], 1)
    return maxima.reshape(shape), logarithms.reshape(shape)


def example_losses(
    outputs: Array, y: Array, loss: str | None, from_logits: bool, delta: float = 1.0, mask: Array | None = None
) -> Array:
    """Return each example's loss as Keras defines it by default, without label smoothing.

    Args:
        outputs: `[examples, ...]` float32, the outputs of `infer`.
        y: `[examples, ...]` labels, one per row of the outputs, or targets of the outputs' shape.
        loss: One of `odt_sim.model.contract.manifest.LOSSES`.
        from_logits: Whether the outputs are logits rather than probabilities.
        delta: The error at which Huber's loss turns from quadratic to linear.
        mask: `[examples, ...]`, 1 where a position counts; None if all do.

    Returns:
        `[examples]` float64: the mean over the positions that count, 0 without any.

    Raises:
        ModelError: The loss is unknown, or has no formula on the host.
    """
    if loss is None:
        raise ModelError(
            "the model's file names no loss, so its loss is unknown; pass it: TrainableModel.load(path, loss=...), or add a "
            "signature 'loss' that returns the losses of examples as 'losses'"
        )
    if loss == NO_LOSS:
        raise ModelError(ONLY_IN_STEPS)
    if loss not in LOSSES:
        raise ModelError(f"the model's loss {loss!r} needs the signature 'loss', which the file lacks; export it again")
    losses = _losses(outputs, y, loss, from_logits, delta)
    if mask is None:
        return losses if losses.ndim == 1 else np.asarray(losses.reshape(len(y), -1).mean(axis=1))
    counts = mask.reshape(len(mask), -1) != 0
    by_position = losses.reshape(*counts.shape, -1).mean(axis=-1)
    return np.asarray((by_position * counts).sum(axis=1) / np.maximum(np.count_nonzero(counts, axis=1), 1))


def _losses(outputs: Array, y: Array, loss: str, from_logits: bool, delta: float) -> Array:
    """Return the losses before averaging: an entry per example, position or output."""
    if loss in REGRESSIONS:
        return _regression_losses(outputs.astype(np.float64), y.reshape(outputs.shape).astype(np.float64), loss, delta)
    if loss == "binary_crossentropy":
        return _binary_losses(outputs.astype(np.float64), y.reshape(outputs.shape), from_logits)
    if loss == "kl_divergence":
        target = np.clip(_one_hot(outputs, y).astype(np.float64), _EPSILON, 1.0)
        return np.asarray((target * np.log(target / np.clip(outputs, _EPSILON, 1.0))).sum(axis=-1))
    if loss == "categorical_crossentropy":
        logarithms = log_softmax(outputs) if from_logits else log_probabilities(outputs)
        return np.asarray(-(_one_hot(outputs, y) * logarithms).sum(axis=-1))
    return label_losses(outputs, labels_of(outputs, y), from_logits)


def label_losses(outputs: Array, labels: NDArray[np.int64], from_logits: bool) -> Array:
    """Return the negative log-probability of each label, in the shape of the labels."""
    rows = outputs.reshape(-1, outputs.shape[-1])
    chosen = np.asarray(rows[np.arange(len(rows)), labels.reshape(-1)].reshape(labels.shape))
    if not from_logits:
        return -log_probabilities(chosen)
    maxima, logarithms = normalizers(outputs)
    with np.errstate(invalid="ignore"):
        return np.asarray(logarithms[..., 0] - (chosen - maxima[..., 0]))


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
        return np.asarray(-y * log_probabilities(outputs) - (1 - y) * log_probabilities(1.0 - outputs))
    return np.asarray(np.maximum(outputs, 0.0) - outputs * y + np.log1p(np.exp(-np.abs(outputs))))


def labels_of(outputs: Array, y: Array) -> NDArray[np.int64]:
    """Return one label per row of the outputs, for labels `[examples]`, `[examples, 1]`, or of positions."""
    return y.reshape(outputs.shape[:-1]).astype(np.int64)


def _one_hot(outputs: Array, y: Array) -> Array:
    """Return one probability per output; labels become one-hot rows."""
    return y if y.ndim == outputs.ndim else np.eye(outputs.shape[-1], dtype=np.float32)[labels_of(outputs, y)]


def log_probabilities(outputs: Array) -> Array:
    """Return the logarithm of probabilities, clipped away from 0 and 1, in float64."""
    return np.asarray(np.log(np.clip(outputs.astype(np.float64), _EPSILON, 1.0 - _EPSILON)))
