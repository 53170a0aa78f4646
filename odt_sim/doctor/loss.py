"""The kind of loss that a step returns, found by comparing it with losses of the outputs of inference."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from odt_sim.data.store.columns import Array
from odt_sim.metrics.losses import example_losses, log_softmax
from odt_sim.model.contract.manifest import LOSSES

CLOSE = 2e-3
"""The relative difference up to which two losses count as equal; Keras clips probabilities in several ways."""

CONSTANT = 0.02
"""The most by which a penalty of the weights may change in a few small steps, relative to itself."""


ASYMMETRIC = ("categorical_crossentropy", "binary_crossentropy", "kl_divergence")
"""The losses that swapped arguments change; squares, distances and cosines are symmetric."""


class Measured(NamedTuple):
    """One call of a step.

    Attributes:
        returned: The loss that it returned.
        y: The targets.
        before: The outputs of inference on the same rows before the step.
        after: The outputs of inference on the same rows after the step.
    """

    returned: float
    y: Array
    before: Array
    after: Array


class Match(NamedTuple):
    """The relation of the returned losses to a known loss.

    Attributes:
        relation: `batch`, `sum`, `running_mean`, `after_step`, `swapped`, `penalty`, or `unknown`.
        loss: The known loss; None for `unknown`.
        from_logits: Whether it takes the outputs as logits.
    """

    relation: str
    loss: str | None = None
    from_logits: bool = True


def matched(calls: Sequence[Measured]) -> Match:
    """Return the relation of a step's losses to a known loss; the most likely relations are tried first.

    Args:
        calls: Successive steps of one engine, on batches with different losses.
    """
    returned = np.array([call.returned for call in calls])
    candidates = [(*key, series) for key, series in _candidates(calls)]
    for relation in ("batch", "sum", "running_mean", "after_step", "swapped", "penalty"):
        for loss, from_logits, series in candidates:
            expected = series.get(relation)
            if expected is None:
                continue
            close = np.allclose(returned, expected, rtol=CLOSE, atol=CLOSE / 10)
            if _is_penalty(returned - expected) if relation == "penalty" else close:
                return Match(relation, loss, from_logits)
    return Match("unknown")


def _candidates(calls: Sequence[Measured]) -> Iterator[tuple[tuple[str, bool], dict[str, Array]]]:
    rows = len(calls[0].before)
    for loss in LOSSES:
        for from_logits in (True, False) if "crossentropy" in loss else (False,):
            before = _series([(call.before, call.y) for call in calls], loss, from_logits)
            if before is None:
                continue
            after = _series([(call.after, call.y) for call in calls], loss, from_logits)
            series = {
                "batch": before,
                "sum": before * rows,
                "running_mean": np.cumsum(before) / np.arange(1, len(calls) + 1),
                "after_step": after,
                "penalty": before,
            }
            yield (loss, from_logits), {key: values for key, values in series.items() if values is not None}
            outputs = [call.before for call in calls]
            for targets in (outputs, [np.exp(log_softmax(each)) for each in outputs]) if loss in ASYMMETRIC else ():
                pairs = [(call.y, target) for call, target in zip(calls, targets, strict=True)]
                swapped = _series(pairs, loss, from_logits)
                if swapped is not None:
                    yield (loss, from_logits), {"swapped": swapped}


def _series(pairs: Sequence[tuple[Array, Array]], loss: str, from_logits: bool) -> Array | None:
    """Return the mean loss of each pair of outputs and targets; None if they do not fit the loss."""
    try:
        with np.errstate(all="ignore"):
            means = [
                example_losses(outputs, _fitted(y, outputs, loss), loss, from_logits).mean() for outputs, y in pairs
            ]
    except (ValueError, IndexError, TypeError):
        return None
    values = np.array(means)
    return values if np.isfinite(values).all() else None


def _fitted(y: Array, outputs: Array, loss: str) -> Array:
    """Return targets in the form that a loss takes.

    Raises:
        ValueError: They have no such form.
    """
    classes = outputs.shape[-1]
    if loss == "sparse_categorical_crossentropy":
        if classes < 2 or (y.shape == outputs.shape) or y.min() < 0 or y.max() >= classes:
            raise ValueError("no class numbers")
        return y
    if loss in ("categorical_crossentropy", "kl_divergence") and (y.shape != outputs.shape or classes < 2):
        raise ValueError("not one-hot")
    return y.astype(np.float32)


def _is_penalty(difference: Array) -> bool:
    """Return whether a difference can be a penalty of weights, which is the same for every batch."""
    mean = difference.mean()
    return bool(abs(mean) > CLOSE and np.abs(difference - mean).max() < CONSTANT * abs(mean))
