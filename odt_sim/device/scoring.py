"""Scores of a device: outputs and metrics of its model for its examples, of a corrected model, or of a predictor."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from odt_sim.arguments import shown
from odt_sim.data.columns import Array, Rows, arrays_of, only, rows_of
from odt_sim.device.examples import Examples
from odt_sim.device.inference import Inference
from odt_sim.errors import ConfigurationError, DataError, InvocationError, SimulationError
from odt_sim.metrics.device import model_example_losses, model_figures, model_loss
from odt_sim.metrics.masks import masks_of
from odt_sim.metrics.own import OwnMetric, own_figures
from odt_sim.model.trainable import TrainableModel
from odt_sim.user_code import user_code_errors

Correction = Callable[[Array, Array], Array]
"""A function of embeddings and outputs, each `[rows, ...]`, that returns corrected outputs."""


class Predictor(ABC):
    """A replacement for `Device.infer`, which `Strategy.deploy` may return instead of weights."""

    @abstractmethod
    def predict(self, x: Rows) -> Rows:
        """Return the outputs for rows `x`, `[rows, ...]`, in the form of `Device.infer`."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The size of the predictor on the device, in bytes."""


class Scored(NamedTuple):
    """What is scored.

    Attributes:
        split: The split's name.
        examples: Its examples, at least one.
        correction: The correction of the model's outputs; None for none.
        predictor: The predictor that replaces the model; None for none.
    """

    split: str
    examples: Examples
    correction: Correction | None = None
    predictor: Predictor | None = None

    def checked(self, device: int) -> "Scored":
        """Return this.

        Raises:
            DataError: There are no examples.
        """
        if not len(self.examples):
            raise DataError(f"device {device}: has no {self.split} examples; provide some")
        return self


def split_of(splits: Mapping[str, Examples], split: object, device: int) -> Examples:
    """Return the examples of a split by its name.

    Raises:
        DataError: It is not a name, or not a known one.
    """
    if not isinstance(split, str):
        raise DataError(
            f"device {device}: expected the name of a split, one of {', '.join(splits)}, found {type(split).__name__}; "
            "for other examples, create another Device"
        )
    if split not in splits:
        raise DataError(f"device {device}: unknown split {split!r}; expected one of {', '.join(splits)}")
    return splits[split]


class Scoring(Protocol):
    """Runs and scores a device's model: `EngineScoring` in this process, others on a phone.

    A phone sends no outputs and no embeddings; all methods but `figures` and `loss` then raise a `DataError`.
    """

    def figures(self, scored: Scored, train: Scored | None) -> dict[str, float]:
        """Return the metrics of a split, given the training examples for a user's metrics; None if there are none."""

    def loss(self, scored: Scored) -> float:
        """Return the mean loss of a split."""

    def example_losses(self, scored: Scored) -> Array:
        """Return the loss of each example of a split, `[examples]`."""

    def outputs(self, scored: Scored) -> Rows:
        """Return the outputs for a split, `[examples, ...]`."""

    def embedded(self, split: str, examples: Examples) -> Examples:
        """Return a split with embeddings as `x`."""

    def infer(self, x: Rows, correction: Correction | None = None) -> Rows:
        """Return the model's outputs, `[rows, ...]`, for checked rows."""

    def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run any signature with checked inputs, which may change weights and slots, and return its outputs."""


class EngineScoring:
    """Scores a device's model in an engine of this process."""

    def __init__(self, id: int, inference: Inference, metrics: Sequence[OwnMetric]) -> None:
        """Score nothing yet.

        Args:
            id: The device's id.
            inference: Runs the device's model.
            metrics: The user's metrics.

        Raises:
            ConfigurationError: The metrics are not a list of `OwnMetric`.
        """
        listed = isinstance(metrics, list | tuple)
        wrong = [metric for metric in metrics if not isinstance(metric, OwnMetric)] if listed else [metrics]
        if wrong:
            raise ConfigurationError(
                f"device {id}: metrics: expected a list of OwnMetric, found {shown(wrong[0])}; create it with "
                "odt_sim.metrics.own.own_metrics([function])"
            )
        self._id, self._inference, self._metrics = id, inference, metrics
        self._model = inference.model
        self._predicts = False  # while a predictor runs, the device's own model answers

    def figures(self, scored: Scored, train: Scored | None) -> dict[str, float]:
        """Return the metrics of a split; see `Scoring`."""
        answers = self._answers(scored)
        user_metrics = own_figures(
            self._metrics,
            answers["answers"],
            answers["y"],
            answers["masks"],
            device=self._id,
            train=lambda: train and self._answers(train),
        )
        return {**model_figures(self._model, **answers), **user_metrics}

    def loss(self, scored: Scored) -> float:
        """Return the mean loss of a split."""
        return model_loss(self._model, **self._answers(scored))

    def example_losses(self, scored: Scored) -> Array:
        """Return the loss of each example of a split, `[examples]`."""
        return model_example_losses(self._model, **self._answers(scored))

    def outputs(self, scored: Scored) -> Rows:
        """Return the outputs for a split, `[examples, ...]`."""
        return rows_of(self._answers(scored)["answers"])

    def embedded(self, split: str, examples: Examples) -> Examples:
        """Return a split with embeddings as `x`."""
        return self._inference.embedded(split, examples)

    def infer(self, x: Rows, correction: Correction | None = None) -> Rows:
        """Return the model's outputs, `[rows, ...]`, for checked rows."""
        outputs = self._inference.outputs("infer", x)
        if correction is None:
            return outputs
        return self._corrected(correction, self._inference.outputs("embed", x), outputs)

    def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run any signature with checked inputs; see `Scoring`."""
        return self._inference.call(signature, inputs)

    def _answers(self, scored: Scored) -> dict[str, Any]:
        """Return the outputs, targets, losses and masks of a split, as `model_figures` takes them.

        Raises:
            SimulationError: The correction or the predictor failed.
        """
        model, examples = self._model, scored.examples
        if scored.predictor is not None and not self._predicts:
            x, y = examples.take()
            masks = self._inference.answers("infer", x)[1] if model.masks else {}  # they depend on the inputs only
            outputs = self._predicted(scored.predictor, x)
        else:
            of_head = model.embeds and not model.masks
            x, y = (self.embedded(scored.split, examples) if of_head else examples).take()
            outputs, masks = self._inference.answers("head_infer" if of_head else "infer", x)
            if scored.correction is not None:
                outputs = self._corrected(scored.correction, self.embedded(scored.split, examples).x, outputs)
        losses = {}
        if model.returns_losses:
            losses = self._inference.losses(examples.take()[0], y, outputs, masks)
        targets = arrays_of(y)
        return {
            "answers": arrays_of(outputs),
            "y": targets,
            "losses": losses,
            "masks": masks_of(model, targets, masks),
        }

    def _predicted(self, predictor: Predictor, x: Rows) -> Rows:
        self._predicts = True
        try:
            with self._errors_of(f"predictor {type(predictor).__name__}", predictor):
                outputs = predictor.predict(x)
                _check_answers(outputs, self._model, len(x))
        finally:
            self._predicts = False
        return outputs

    def _corrected(self, correction: Correction, embeddings: Rows, outputs: Rows) -> Array:
        """Return corrected outputs `[rows, ...]`.

        Raises:
            SimulationError: The correction failed, or returned another shape.
        """
        advice = "choose another strategy"
        given = only(embeddings, "embed", advice), only(outputs, "infer", advice)
        with self._errors_of("correction", correction):
            result = correction(*given)
            _check_answers(result, self._model, len(given[1]))
        return result

    def _errors_of(self, name: str, owner: Any) -> AbstractContextManager[None]:
        what = f"device {self._id}: the {name} failed"
        return user_code_errors(owner, what, SimulationError, passes=InvocationError)


def _check_answers(answers: Any, model: TrainableModel, rows: int) -> None:
    """Check the answers of a user's predictor or correction, for a model with one output.

    Raises:
        TypeError: They are not an array.
        ValueError: Their shape differs from the output of `infer`; targets would take that shape, and metrics be wrong.
    """
    if len(model.answers) > 1:
        return
    if not isinstance(answers, np.ndarray):
        raise TypeError(f"it returned {type(answers).__name__}, expected a numpy array")
    expected = (rows, *model.output.shape[1:])
    fits = zip(answers.shape, expected, strict=False)
    if answers.ndim != len(expected) or not all(wanted in (size, -1) for size, wanted in fits):
        raise ValueError(f"it returned the shape {list(answers.shape)}, expected {list(expected)}, as infer returns")
