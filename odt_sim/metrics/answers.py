"""A model's outputs with their targets, with a method per metric; a metric is None if it is undefined."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.losses import label_losses, labels_of, log_softmax, normalizers
from odt_sim.metrics.scores import auc, auc_of_labels
from odt_sim.model.weights import Array


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


class Values:
    """Predicted values, `[examples, ...]`, with targets of the same shape; uses Keras' formulas."""

    def __init__(self, outputs: Array, y: Array, from_logits: bool = False) -> None:
        """Set outputs `[examples, ...]` and targets."""
        self.outputs, self.y = outputs, y.reshape(outputs.shape)
        self._errors = outputs.astype(np.float64) - self.y

    def mse(self) -> float:
        """Return the mean squared error."""
        return float((self._errors**2).mean())

    def rmse(self) -> float:
        """Return the root of the mean squared error."""
        return float(np.sqrt(self.mse()))

    def mae(self, target: int | None = None) -> float:
        """Return the mean absolute error of all targets, or of one target."""
        return float(np.abs(self._errors if target is None else self._errors[..., target]).mean())

    def mape(self) -> float:
        """Return the mean of 100 |error| / |target|."""
        return float(100 * (np.abs(self._errors) / np.maximum(np.abs(self.y), 1e-7)).mean())

    def msle(self) -> float:
        """Return the mean squared difference of log(1 + value)."""
        logarithms = [np.log1p(np.maximum(v.astype(np.float64), 1e-7)) for v in (self.outputs, self.y)]
        return float(((logarithms[0] - logarithms[1]) ** 2).mean())

    def log_cosh(self) -> float:
        """Return the mean of log(cosh(error))."""
        size = np.abs(self._errors)
        return float((size + np.log1p(np.exp(-2 * size)) - np.log(2)).mean())

    def cosine(self) -> float:
        """Return the mean cosine of the angle between output and target, over the last axis."""
        vectors = [v.astype(np.float64) for v in (self.outputs, self.y)]
        lengths = [np.maximum(np.linalg.norm(v, axis=-1), 1e-7) for v in vectors]
        return float(((vectors[0] * vectors[1]).sum(axis=-1) / (lengths[0] * lengths[1])).mean())

    def r2(self) -> float | None:
        """Return the coefficient of determination: 1 minus the squared error relative to that of predicting the mean.

        For several outputs, it is the unweighted mean over the outputs whose targets vary; None if none varies.
        """
        targets, errors = (array.reshape(len(array), -1).astype(np.float64) for array in (self.y, self._errors))
        total = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
        varies = total > 0
        if not varies.any():
            return None
        return float((1 - (errors**2).sum(axis=0)[varies] / total[varies]).mean())


class Classes:
    """The class of each example or position, with its scores; NaN predicts no class."""

    def __init__(self, outputs: Array, y: Array, from_logits: bool, *, binary: bool = False) -> None:
        """Set outputs and labels.

        Args:
            outputs: `[..., classes]`, or `[..., 1]` for one score of two classes.
            y: `[...]` labels, `[..., classes]` probabilities, or `[..., 1]` for one score.
            from_logits: Whether the outputs are logits rather than probabilities.
            binary: Whether the outputs are one score of two classes.
        """
        self.outputs, self._from_logits, self._binary = outputs, from_logits, binary
        self._known = ~np.isnan(outputs) if binary else ~np.isnan(outputs).any(axis=-1)
        self.predicted: Array
        if binary:
            self.labels: Array = y.reshape(outputs.shape) > 0.5
            self.predicted = outputs > (0.0 if from_logits else 0.5)
        else:
            hot = y.shape == outputs.shape and (y.dtype.kind == "f" or y.shape[-1] > 1)
            self.labels = y.argmax(axis=-1) if hot else labels_of(outputs, y)
            self.predicted = outputs.argmax(axis=-1)
        self.right: NDArray[np.bool_] = (self.predicted == self.labels) & self._known
        self.classes = 2 if binary else outputs.shape[-1]

    def accuracy(self) -> float:
        """Return the fraction of correct predictions."""
        return float(self.right.mean())

    def balanced_accuracy(self) -> float:
        """Return the mean recall of the classes that occur."""
        _, classes = np.unique(self.labels.ravel(), return_inverse=True)
        return float((np.bincount(classes, weights=self.right.ravel()) / np.bincount(classes)).mean())

    def auc(self) -> float | None:
        """Return the area under the ROC curve, each class against the rest."""
        outputs, labels = self.outputs.reshape(-1, self.outputs.shape[-1]), self.labels.reshape(-1)
        if self._binary:
            return auc(outputs, self._positive.reshape(outputs.shape))
        if not np.isfinite(outputs).all():
            return None
        if not self._from_logits:
            return auc_of_labels(lambda classes: outputs[:, classes], labels)
        # Probabilities, since logits of different examples have no common scale.
        maxima, logarithms = normalizers(outputs)
        return auc_of_labels(lambda classes: outputs[:, classes] - maxima - logarithms, labels)

    @cached_property
    def _positive(self) -> NDArray[np.bool_]:
        """Whether each class is the label, `[..., classes]`, or `[..., 1]` for one score."""
        if self._binary:
            return np.asarray(self.labels, np.bool_)
        return np.asarray(self.labels[..., np.newaxis] == np.arange(self.classes))

    def perplexity(self) -> float | None:
        """Return the exponential of the mean negative log-probability of the labels."""
        if self._binary:
            return None
        return float(np.exp(label_losses(self.outputs, self.labels, self._from_logits).mean(dtype=np.float64)))

    def iou(self) -> float | None:
        """Return the mean over classes of intersection / union; None if an output is NaN.

        A class without predictions and labels does not count.
        """
        if not self._known.all():
            return None
        chosen = (self.predicted, self.labels, self.predicted[self.right])
        predicted, labels, both = (
            np.bincount(classes.ravel().astype(np.int64), minlength=self.classes) for classes in chosen
        )
        union = predicted + labels - both
        return float((both[union > 0] / union[union > 0]).mean())

    def top(self, k: int) -> float | None:
        """Return the fraction of labels with fewer than `k` classes scored above them, as in Keras."""
        if self._binary or not self._known.all():
            return None
        of_labels = np.take_along_axis(self.outputs, self.labels[..., np.newaxis], axis=-1)
        return float(((self.outputs > of_labels).sum(axis=-1) < k).mean())

    def precision(self) -> float:
        """Return the fraction of correct classes among those with a probability above one half."""
        return self._confident.precision()

    def recall(self) -> float:
        """Return the fraction of labels with a probability above one half."""
        return self._confident.recall()

    @property
    def _confident(self) -> Decisions:
        if self._binary:
            return self._decisions
        chances = np.exp(log_softmax(self.outputs)) if self._from_logits else self.outputs
        return Decisions((chances > 0.5).reshape(-1, self.classes), self._positive.reshape(-1, self.classes))

    def micro_f1(self) -> float:
        """Return the F1 score of all classes together, which is the accuracy, except for two classes with one score."""
        return self._decisions.micro_f1()

    def macro_f1(self) -> float:
        """Return the unweighted mean of the classes' F1 scores; for two classes with one score, the second class's."""
        return self._decisions.macro_f1()

    @property
    def _decisions(self) -> Decisions:
        columns = self.outputs.shape[-1]
        chosen = self.predicted if self._binary else self.predicted[..., np.newaxis] == np.arange(columns)
        return Decisions(np.asarray(chosen).reshape(-1, columns), self._positive.reshape(-1, columns))


class Labels(Classes):
    """Multi-label outputs, `[examples, ..., labels]`; each label applies or not."""

    def __init__(self, outputs: Array, y: Array, from_logits: bool) -> None:
        """Set a score per label; see `Classes`."""
        super().__init__(outputs, y, from_logits, binary=True)

    def exact_match(self) -> float:
        """Return the fraction of examples whose labels are all correct."""
        return float(self.right.reshape(-1, self.right.shape[-1]).all(axis=1).mean())


class Ranked(Classes):
    """Scores of candidates of queries, such as a held-out item among sampled ones (leave-one-out).

    He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1; Jaervelin and Kekaelaeinen, "Cumulated gain-based
    evaluation of IR techniques", 2002; for the AUC of each query Zhu et al., "Optimized Cost per Click in Taobao Display
    Advertising", KDD 2017. In hit rate and NDCG, ties count against the model: with equal scores for all candidates,
    relevant ones rank last.

    Attributes:
        ranked: `[queries, candidates]` whether the candidate at each rank is relevant, for the queries with a relevant
            candidate; None without such a query, or if a score is not finite.
    """

    def __init__(self, outputs: Array, y: Array, from_logits: bool) -> None:
        """Rank the candidates.

        Args:
            outputs: `[queries, candidates]`, or `[candidates, 1]` for a single query, such as one user's examples.
            y: The relevance of each candidate, of the same size: above 0.5 is relevant.
            from_logits: Whether the outputs are logits rather than probabilities.
        """
        super().__init__(outputs, y, from_logits, binary=True)
        scores = outputs.astype(np.float64)
        self._scores = scores if scores.ndim == 2 and scores.shape[1] > 1 else scores.reshape(1, -1)
        self._relevant = y.reshape(self._scores.shape) > 0.5
        answered = self._relevant.any(axis=1)
        self.ranked: NDArray[np.bool_] | None = None
        if answered.any() and np.isfinite(scores).all():
            order = np.lexsort((self._relevant, -self._scores), axis=-1)  # among equal scores, irrelevant ones first
            self.ranked = np.take_along_axis(self._relevant, order, axis=-1)[answered]

    def auc(self) -> float | None:
        """Return the mean area under the ROC curve over the queries with both kinds of candidates.

        Scores of different queries are not compared, so they need no common scale.
        """
        return auc(self._scores.T, self._relevant.T)

    def hit_rate(self, k: int) -> float | None:
        """Return the fraction of queries with a relevant candidate among the first `k`."""
        return None if self.ranked is None else float(self.ranked[:, :k].any(axis=1).mean())

    def ndcg(self, k: int) -> float | None:
        """Return the mean over queries of the gain of the first `k`, 1 / log2(1 + rank), relative to the best order."""
        if self.ranked is None:
            return None
        gains = 1 / np.log2(np.arange(2, self.ranked.shape[1] + 2))
        gains[k:] = 0
        best = np.cumsum(gains)[self.ranked.sum(axis=1) - 1]
        return float(((self.ranked @ gains) / best).mean())
