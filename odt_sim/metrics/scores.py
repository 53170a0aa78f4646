"""Balanced accuracy, AUC and R2; None if they are undefined for the examples.

The values equal scikit-learn's; importing it would cost memory in each device process.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from odt_sim.model.weights import Array

_MOST_NUMBERS = 1 << 20
"""The most scores of `auc_of_labels` that are in memory at once."""


def balanced_accuracy(right: NDArray[np.bool_], labels: Array) -> float | None:
    """Return the mean recall of the classes that occur.

    Args:
        right: `[...]` whether each prediction is correct.
        labels: `[...]` integers.
    """
    _, classes = np.unique(labels.ravel(), return_inverse=True)
    if not len(classes):
        return None
    return float((np.bincount(classes, weights=right.ravel()) / np.bincount(classes)).mean())


def auc(scores: Array, positive: NDArray[np.bool_]) -> float | None:
    """Return the area under the ROC curve; for several classes, the unweighted mean of each class against the rest.

    It is the probability that a positive example has a higher score than a negative one; ties count half (Hanley and
    McNeil, 1982). Classes with all or no examples do not count.

    Args:
        scores: `[examples, classes]`.
        positive: `[examples, classes]` whether each example is of the class.

    Returns:
        A value from 0 to 1, one half for random scores; None if no class counts, or a score is not finite.
    """
    if not np.isfinite(scores).all():
        return None
    positives = positive.sum(axis=0)
    both = np.flatnonzero((positives > 0) & (positives < len(positive)))
    return float(_areas(scores[:, both], positive[:, both]).mean()) if len(both) else None


def auc_of_labels(scores_of: Callable[[NDArray[np.int64]], Array], labels: Array) -> float | None:
    """Return `auc` for one label per example, without the scores of all classes in memory.

    Args:
        scores_of: Returns the scores of some classes, `[examples, number of these classes]`, all finite.
        labels: `[examples]` integers.
    """
    classes = np.unique(labels)
    if len(classes) == 1:
        return None
    most = max(_MOST_NUMBERS // len(labels), 1)
    blocks = np.split(classes, range(most, len(classes), most))
    areas = [_areas(scores_of(block), labels[:, np.newaxis] == block) for block in blocks]
    return float(np.concatenate(areas).mean())


def _areas(scores: Array, positive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the area of each class, `[classes]`; each has positive and negative examples."""
    positives, columns = positive.sum(axis=0), np.ascontiguousarray(scores.T)
    of_positives = np.split(columns[positive.T], np.cumsum(positives)[:-1])
    columns = np.sort(columns, axis=1)
    # For each positive, the number of scores below it plus the number not above it, both among all scores.
    pairs = zip(columns, of_positives, strict=True)
    over_all = [(scores.searchsorted(own) + scores.searchsorted(own, "right")).sum() for scores, own in pairs]
    over_negatives = np.array(over_all) - positives**2  # pairs of two positives do not count
    return np.asarray(over_negatives / (2 * positives * (len(positive) - positives)))


def r2(outputs: Array, y: Array) -> float | None:
    """Return the coefficient of determination: 1 minus the squared error relative to that of predicting the mean.

    For several outputs, it is the unweighted mean over the outputs whose targets vary.

    Args:
        outputs: `[examples, ...]`.
        y: The targets, of the same shape.

    Returns:
        A value of at most 1, 0 for predicting the mean; None if no target varies.
    """
    predicted, targets = (array.reshape(len(array), -1).astype(np.float64) for array in (outputs, y))
    total = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    varies = total > 0
    if not varies.any():
        return None
    return float((1 - ((targets - predicted) ** 2).sum(axis=0)[varies] / total[varies]).mean())
