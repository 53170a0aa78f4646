"""Balanced accuracy, AUC and R2; None if the examples leave them undefined.

The values are those of scikit-learn; written in numpy, because importing scikit-learn costs a device process memory.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def balanced_accuracy(right: NDArray[np.bool_], labels: Array) -> float | None:
    """Return the mean recall of the classes that occur.

    Args:
        right: `[...]` whether each prediction is right.
        labels: `[...]` integers.
    """
    _, classes = np.unique(labels.ravel(), return_inverse=True)
    if not len(classes):
        return None
    return float((np.bincount(classes, weights=right.ravel()) / np.bincount(classes)).mean())


def auc(scores: Array, positive: NDArray[np.bool_]) -> float | None:
    """Return the area under the ROC curve; for several classes the plain mean of one against the rest.

    It is the probability that a positive example has a higher score than a negative one; ties count half (Hanley and
    McNeil, 1982). Classes of all or no examples do not count.

    Args:
        scores: `[examples, classes]`.
        positive: `[examples, classes]` whether each example is of the class.

    Returns:
        0 to 1, one half by chance; None if no class counts, or a score is not finite.
    """
    if not np.isfinite(scores).all():
        return None
    counts = positive.sum(axis=0)
    both = (counts > 0) & (counts < len(positive))
    if not both.any():
        return None
    positives, columns = counts[both], scores.T[both]
    of_positives = np.split(columns[positive.T[both]], np.cumsum(positives)[:-1])
    columns.sort(axis=1)
    # For each positive, the number of scores below it plus the number not above it, both among all.
    pairs = zip(columns, of_positives, strict=True)
    over_all = [(scores.searchsorted(own) + scores.searchsorted(own, "right")).sum() for scores, own in pairs]
    over_negatives = np.array(over_all) - positives**2  # pairs of two positives do not count
    return float((over_negatives / (2 * positives * (len(positive) - positives))).mean())


def r2(outputs: Array, y: Array) -> float | None:
    """Return the coefficient of determination: 1 minus the squared error relative to that of the mean of `y`.

    For several outputs it is the plain mean over those that vary.

    Args:
        outputs: `[examples, ...]`.
        y: The targets, of the same shape.

    Returns:
        At most 1, 0 for predicting the mean; None if no target varies.
    """
    predicted, targets = (array.reshape(len(array), -1).astype(np.float64) for array in (outputs, y))
    total = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    varies = total > 0
    if not varies.any():
        return None
    return float((1 - ((targets - predicted) ** 2).sum(axis=0)[varies] / total[varies]).mean())
