"""Areas under ROC curves and scores of transcripts; None if they are undefined for the examples.

The values equal those of scikit-learn and Keras; importing either would cost memory in each device process.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from odt_sim.model.weights import Array

_MOST_NUMBERS = 1 << 20
"""The most scores of `auc_of_labels` that are in memory at once."""


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


Tokens = NDArray[np.int64]


class Transcripts:
    """Labels decoded from the most likely class of each frame, compared with the targets; class 0 is the blank.

    Graves et al. 2006, Connectionist Temporal Classification: Labelling Unsegmented Sequence Data with Recurrent Neural
    Networks: best path decoding (section 3.2) and the label error rate (section 2.1).
    """

    def __init__(self, outputs: Array, y: Array, from_logits: bool = True) -> None:
        """Decode the outputs.

        Args:
            outputs: `[examples, frames, classes]`, logits or probabilities; the most likely classes are the same.
            y: `[examples, labels]` integers, padded with zeros at the end.
            from_logits: Ignored.
        """
        known = ~np.isnan(outputs).any(axis=-1)
        right = compact(y)
        self._labels = np.count_nonzero(right)
        self._distances = edit_distances(decoded(outputs.argmax(axis=-1) * known), right)

    def token_error_rate(self) -> float | None:
        """Return the insertions, deletions and substitutions that correct all transcripts, per target label."""
        return float(self._distances.sum() / self._labels) if self._labels else None

    def exact_match(self) -> float:
        """Return the fraction of transcripts without an error."""
        return float((self._distances == 0).mean())


def decoded(path: Array) -> Tokens:
    """Return the labels of paths `[examples, frames]`, without repeated classes and then without blanks."""
    repeated = np.zeros(path.shape, np.bool_)
    repeated[:, 1:] = path[:, 1:] == path[:, :-1]
    return compact(np.where(repeated, 0, path))


def compact(labels: Array) -> Tokens:
    """Return integers, `[examples, places]`, with each example's zeros moved to the end; others keep their order."""
    order = np.argsort(labels == 0, axis=1, kind="stable")
    return np.take_along_axis(labels, order, axis=1).astype(np.int64)


def edit_distances(one: Tokens, other: Tokens) -> Tokens:
    """Return the Levenshtein distance between each example's labels, `[examples]`; labels are padded with zeros."""
    lengths, others = (np.count_nonzero(labels, axis=1) for labels in (one, other))
    one, other = one[:, : lengths.max()], other[:, : others.max()]
    # row[:, j] is the distance of the first i labels of `one` to the first j of `other`
    row = np.broadcast_to(np.arange(other.shape[1] + 1), (len(other), other.shape[1] + 1))
    rows = [row]
    for i in range(one.shape[1]):
        replaced = row[:, :-1] + (one[:, i : i + 1] != other)
        columns = [np.full(len(other), i + 1)]
        for j in range(other.shape[1]):
            columns.append(np.minimum(np.minimum(columns[-1], row[:, j + 1]) + 1, replaced[:, j]))
        row = np.stack(columns, axis=1)
        rows.append(row)
    examples = np.arange(len(other))
    distances: Tokens = np.stack(rows)[lengths, examples, others]
    return distances
