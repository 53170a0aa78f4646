"""Figures that a device's examples may leave undefined: balanced accuracy, AUC and R2; None where they do.

In numpy, so that no device process loads scikit-learn; where scikit-learn defines them, the numbers are its own.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def balanced_accuracy(right: NDArray[np.bool_], labels: Array) -> float | None:
    """Returns the mean over the classes that occur of the fraction of each that is predicted right (its recall).

    Args:
        right: `[...]` whether each prediction is.
        labels: `[...]` integers.
    """
    _, of = np.unique(labels.ravel(), return_inverse=True)
    return float((np.bincount(of, weights=right.ravel()) / np.bincount(of)).mean()) if len(of) else None


def auc(scores: Array, positive: NDArray[np.bool_]) -> float | None:
    """Returns the area under the ROC curve; of several classes the plain mean of each against the rest.

    It is the probability that a positive example has a higher score than a negative one, equal scores counting half (Hanley
    and McNeil, 1982). Classes of which all or no examples are do not count.

    Args:
        scores: `[examples, classes]`.
        positive: `[examples, classes]` which examples are of which class.

    Returns:
        0 to 1, one half by chance; None where no class has both, or a score is not finite.
    """
    if not np.isfinite(scores).all():
        return None
    counts = positive.sum(axis=0)
    both = (counts > 0) & (counts < len(positive))
    if not both.any():
        return None
    positives, order = counts[both], np.argsort(scores[:, both], axis=0)
    below_or_equal = _below_and_not_above(np.take_along_axis(scores[:, both], order, axis=0))
    of_all = (below_or_equal * np.take_along_axis(positive[:, both], order, axis=0)).sum(axis=0)
    of_negatives = of_all - positives**2  # any two positives, and each with itself, count two and one
    return float((of_negatives / (2 * positives * (len(positive) - positives))).mean())


def _below_and_not_above(ordered: Array) -> NDArray[np.int64]:
    """Returns for each score how many of its column are below it, plus how many are not above it.

    Args:
        ordered: `[examples, classes]`, ascending in each column.
    """
    places = np.arange(len(ordered))[:, np.newaxis]
    differs = ordered[1:] != ordered[:-1]
    edge = np.ones((1, ordered.shape[1]), np.bool_)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs]), places, 0), axis=0)
    last = np.where(np.concatenate([differs, edge]), places, len(ordered))[::-1]
    return np.asarray(first + np.minimum.accumulate(last, axis=0)[::-1] + 1)


def r2(outputs: Array, y: Array) -> float | None:
    """Returns the coefficient of determination: 1 minus the squared error relative to that of the mean of `y`.

    Of several outputs it is the plain mean over those that vary.

    Args:
        outputs: `[examples, ...]`.
        y: The targets, of the same shape.

    Returns:
        At most 1, 0 for predicting the mean; None where no target varies.
    """
    predicted, wanted = (array.reshape(len(array), -1).astype(np.float64) for array in (outputs, y))
    total = ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0)
    varies = total > 0
    if not varies.any():
        return None
    return float((1 - ((wanted - predicted) ** 2).sum(axis=0)[varies] / total[varies]).mean())
