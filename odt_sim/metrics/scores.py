"""Scores of values, classes, rankings and transcripts; None if they are undefined for the examples.

The values equal those of scikit-learn and Keras; importing either would cost memory in each device process.
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


class Ranking:
    """Candidates of queries, ranked by their scores, such as a held-out item among sampled ones (leave-one-out).

    He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1; Jaervelin and Kekaelaeinen, "Cumulated gain-based
    evaluation of IR techniques", 2002; for the AUC of each query Zhu et al., "Optimized Cost per Click in Taobao Display
    Advertising", KDD 2017. In hit rate and NDCG, ties count against the model: with equal scores for all candidates,
    relevant ones rank last.

    Attributes:
        relevant: `[queries, candidates]` whether the candidate at each rank is relevant, for the queries with a
            relevant candidate.
    """

    def __init__(self, scores: Array, y: Array) -> None:
        """Rank the candidates.

        Args:
            scores: `[queries, candidates]`, or `[candidates]` or `[candidates, 1]` for a single query, such as one
                user's examples.
            y: The relevance of each candidate, of the same size: above 0.5 is relevant.
        """
        rows = scores if scores.ndim == 2 and scores.shape[1] > 1 else scores.reshape(1, -1)
        relevant = y.reshape(rows.shape) > 0.5
        self._columns = rows.T, relevant.T  # `[candidates, queries]`
        order = np.lexsort((relevant, -rows), axis=-1)  # among equal scores, irrelevant candidates first
        self._finite = bool(np.isfinite(rows).all())
        self.relevant = np.take_along_axis(relevant, order, axis=-1)[relevant.any(axis=1)]

    @property
    def defined(self) -> bool:
        """Whether at least one query has a relevant candidate and all scores are finite."""
        return self._finite and len(self.relevant) > 0

    def hit_rate(self, k: int) -> float | None:
        """Return the fraction of queries with a relevant candidate among the first `k`; None if undefined."""
        return float(self.relevant[:, :k].any(axis=1).mean()) if self.defined else None

    def ndcg(self, k: int) -> float | None:
        """Return the mean over queries of the gain of the first `k`, 1 / log2(1 + rank), relative to the best order."""
        if not self.defined:
            return None
        gains = 1 / np.log2(np.arange(2, self.relevant.shape[1] + 2))
        gains[k:] = 0
        best = np.cumsum(gains)[self.relevant.sum(axis=1) - 1]
        return float(((self.relevant @ gains) / best).mean())

    def auc(self) -> float | None:
        """Return the mean over queries of the area under the ROC curve; None if undefined.

        Queries without a relevant or without an irrelevant candidate do not count. Scores of different queries are not
        compared, so they need no common scale.
        """
        return auc(*self._columns)


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
