"""A model's outputs with their targets, with a method per metric; a metric is None if it is undefined."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.losses import label_losses, labels_of, log_softmax, normalizers
from odt_sim.metrics.scores import Decisions, Ranking, auc, auc_of_labels, balanced_accuracy, mean_iou, r2, top_k
from odt_sim.model.weights import Array


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
        """Return the coefficient of determination."""
        return r2(self.outputs, self.y)


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

    def balanced_accuracy(self) -> float | None:
        """Return the mean recall of the classes that occur."""
        return balanced_accuracy(self.right, self.labels)

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
        """Return the mean over classes of intersection / union; None if an output is NaN."""
        return mean_iou(self.predicted, self.labels, self.classes) if self._known.all() else None

    def top(self, k: int) -> float | None:
        """Return the fraction of labels among the `k` classes with the highest scores."""
        return None if self._binary or not self._known.all() else top_k(self.outputs, self.labels, k)

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
    """Scores of relevant and irrelevant candidates."""

    def __init__(self, outputs: Array, y: Array, from_logits: bool) -> None:
        """Set a score per candidate; each row of `[examples, candidates]` is a query, `[examples, 1]` is one query."""
        super().__init__(outputs, y, from_logits, binary=True)
        self._ranking = Ranking(outputs.astype(np.float64), y)

    def auc(self) -> float | None:
        """Return the mean area under the ROC curve over the queries with both kinds of candidates."""
        return self._ranking.auc()

    def hit_rate(self, k: int) -> float | None:
        """Return the fraction of queries with a relevant candidate among the first `k`."""
        return self._ranking.hit_rate(k)

    def ndcg(self, k: int) -> float | None:
        """Return the mean normalized discounted cumulative gain at `k`."""
        return self._ranking.ndcg(k)
