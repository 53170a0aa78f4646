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
    areas = [_area(scores[:, k], positive[:, k]) for k in np.flatnonzero((counts > 0) & (counts < len(positive)))]
    return float(np.mean(areas)) if areas else None


def _area(scores: Array, positive: NDArray[np.bool_]) -> float:
    negatives, positives = np.sort(scores[~positive]), scores[positive]
    below_twice = sum(int(np.searchsorted(negatives, positives, side).sum()) for side in ("left", "right"))
    return below_twice / (2 * len(negatives) * len(positives))


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
