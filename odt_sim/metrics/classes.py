"""Scores of predicted classes; None if they are undefined for the examples.

The values equal those of scikit-learn and Keras; importing either would cost memory in each device process.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.model.weights import Array


def mean_iou(predicted: Array, labels: Array, classes: int) -> float | None:
    """Return the mean over classes of intersection / union; a class without predictions and labels does not count.

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
    """Return the fraction of rows with fewer than `k` classes scored above the label, as in Keras.

    Args:
        scores: `[..., classes]`.
        labels: `[...]` integers.
        k: At least 1.
    """
    own = np.take_along_axis(scores, labels[..., np.newaxis], axis=-1)
    return float(((scores > own).sum(axis=-1) < k).mean())


class Decisions:
    """Binary decisions for several labels, counted by label.

    Attributes:
        right: `[labels]`, the number of true positives.
        predicted: `[labels]`, the number of predicted positives.
        positive: `[labels]`, the number of actual positives.
    """

    def __init__(self, predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> None:
        """Count decisions `[examples, labels]`."""
        self.right = (predicted & positive).sum(axis=0)
        self.predicted, self.positive = predicted.sum(axis=0), positive.sum(axis=0)

    def precision(self) -> float:
        """Return the fraction of true positives among predicted positives; 0 without any."""
        return float(self.right.sum() / max(self.predicted.sum(), 1))

    def recall(self) -> float:
        """Return the fraction of true positives among actual positives; 0 without any."""
        return float(self.right.sum() / max(self.positive.sum(), 1))

    def micro_f1(self) -> float:
        """Return the F1 score of all decisions together; 0 without predicted or actual positives."""
        return float(2 * self.right.sum() / max((self.predicted + self.positive).sum(), 1))

    def macro_f1(self) -> float:
        """Return the unweighted mean of the labels' F1 scores; a label without predicted or actual positives has 0."""
        return float((2 * self.right / np.maximum(self.predicted + self.positive, 1)).mean())
