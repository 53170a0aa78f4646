"""Scores of predicted classes; None if the examples leave them undefined.

The values are those of scikit-learn and Keras; written in numpy, because importing either costs a device process memory.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def mean_iou(predicted: Array, labels: Array, classes: int) -> float | None:
    """Return the mean over classes of intersection / union; a class without prediction and label does not count.

    Args:
        predicted: `[...]` integers.
        labels: `[...]` integers.
        classes: The number of classes.
    """
    union = _counts(predicted, classes) + _counts(labels, classes)
    both = _counts(predicted[predicted == labels], classes)
    present = union > 0
    return float((both[present] / (union - both)[present]).mean()) if present.any() else None


def _counts(values: Array, classes: int) -> NDArray[np.int64]:
    return np.bincount(values.ravel().astype(np.int64), minlength=classes)


def top_k(scores: Array, labels: Array, k: int) -> float:
    """Return the fraction of rows with fewer than `k` classes above that of the label, as Keras computes it.

    Args:
        scores: `[..., classes]`.
        labels: `[...]` integers.
        k: At least 1.
    """
    own = np.take_along_axis(scores, labels[..., np.newaxis], axis=-1)
    return float(((scores > own).sum(axis=-1) < k).mean())


class Decisions:
    """Decisions of yes or no for several labels, counted by label.

    Attributes:
        right: `[labels]`: yes, and right.
        predicted: `[labels]`: yes.
        positive: `[labels]`: those that should be yes.
    """

    def __init__(self, predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> None:
        """Count decisions `[examples, labels]`."""
        self.right = (predicted & positive).sum(axis=0)
        self.predicted, self.positive = predicted.sum(axis=0), positive.sum(axis=0)

    def precision(self) -> float:
        """Return the fraction of correct ones among all yes, 0 without any."""
        return float(self.right.sum() / max(self.predicted.sum(), 1))

    def recall(self) -> float:
        """Return the fraction of all positives that are found, 0 without any."""
        return float(self.right.sum() / max(self.positive.sum(), 1))

    def micro_f1(self) -> float:
        """Return the F1 of all decisions together, 0 without yes and positives."""
        return float(2 * self.right.sum() / max((self.predicted + self.positive).sum(), 1))

    def macro_f1(self) -> float:
        """Return the plain mean of the labels' F1; a label without yes and positives has 0."""
        return float((2 * self.right / np.maximum(self.predicted + self.positive, 1)).mean())
