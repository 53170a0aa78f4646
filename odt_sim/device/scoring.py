"""Scores of a device: outputs and metrics of its model for its examples, of a corrected model, or of a predictor."""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from odt_sim._support.checks import shown
from odt_sim._support.user_code import user_code_errors
from odt_sim.data.store.columns import Array, Rows, arrays_of, only, prefixed, rows_of
from odt_sim.device.batches import padded
from odt_sim.device.embedding_cache import digest_of_body
from odt_sim.device.examples import Examples, targets_of
from odt_sim.device.runtime import Runtime, inputs_of
from odt_sim.device.runtime_pool import STATE, ModelState, RuntimePool
from odt_sim.errors import ConfigurationError, DataError, InvocationError, ModelError, SimulationError
from odt_sim.metrics.device import masks_of, model_example_losses, model_figures, model_loss
from odt_sim.metrics.own import OwnMetric, own_figures
from odt_sim.model.contract.names import full, parts
from odt_sim.model.trainable import TrainableModel

Correction = Callable[[Array, Array], Array]
"""A function of embeddings and outputs, each `[rows, ...]`, that returns corrected outputs."""


@dataclass
class Calls:
    """Model calls of a device.

    Attributes:
        train: Training steps.
        infer: Batches of inference or embedding. Cached embeddings count as computed, so that every backend counts alike.
        by_signature: The same calls by signature.
        rows: The examples of these calls, without padding.
    """

    train: int = 0
    infer: int = 0
    by_signature: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    rows: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add_steps(self, signature: str, steps: int, rows: int) -> None:
        """Count training steps and the examples of all these steps."""
        self.train += steps
        self._add(signature, steps, rows)

    def add_inference(self, signature: str, calls: int, rows: int) -> None:
        """Count calls of inference or embedding and the examples of all these calls."""
        self.infer += calls
        self._add(signature, calls, rows)

    def _add(self, signature: str, calls: int, rows: int) -> None:
        self.by_signature[signature] += calls
        self.rows[signature] += rows


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
    """Runs and scores a device's model in an engine of this process, and counts the calls."""

    def __init__(
        self, device: int, state: ModelState, pool: RuntimePool, calls: Calls, metrics: Sequence[OwnMetric]
    ) -> None:
        """Run nothing yet.

        Args:
            device: The device's id.
            state: The device's weights.
            pool: The pool that caches the device's embeddings.
            calls: The counter to increase.
            metrics: The user's metrics.

        Raises:
            ConfigurationError: The metrics are not a list of `OwnMetric`.
        """
        listed = isinstance(metrics, list | tuple)
        wrong = [metric for metric in metrics if not isinstance(metric, OwnMetric)] if listed else [metrics]
        if wrong:
            raise ConfigurationError(
                f"device {device}: metrics: expected a list of OwnMetric, found {shown(wrong[0])}; create it with "
                "odt_sim.metrics.own.own_metrics([function])"
            )
        self._device, self._state, self._pool, self._calls, self._metrics = device, state, pool, calls, metrics
        self._model = pool.model
        self._embedded: dict[str, str] = {}  # by split, the body whose embeddings were counted
        self._predicts = False  # while a predictor runs, the device's own model answers

    def figures(self, scored: Scored, train: Scored | None) -> dict[str, float]:
        """Return the metrics of a split; see `Scoring`."""
        answers = self._answers(scored)
        user_metrics = own_figures(
            self._metrics,
            answers["answers"],
            answers["y"],
            answers["masks"],
            device=self._device,
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
        """Return a split with embeddings as `x`; compute them once per body."""
        body = digest_of_body(self._state.body)
        calls = _call_count(self._model, "embed", len(examples))
        embeddings = self._pool.embeddings.get(
            self._device, split, examples, body, lambda: self._embeddings(examples.take()[0])
        )
        if self._embedded.get(split) != body:
            self._calls.add_inference("embed", calls, len(examples))
            self._embedded[split] = body
        return examples.with_embeddings(embeddings)

    def infer(self, x: Rows, correction: Correction | None = None) -> Rows:
        """Return the model's outputs, `[rows, ...]`, for checked rows."""
        outputs = self.answers("infer", x)[0]
        return outputs if correction is None else self._corrected(correction, self.answers("embed", x)[0], outputs)

    def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run any signature, which may change weights and slots, and return its outputs."""
        outputs = self._state.runtime(changes=STATE).run(signature, **inputs)
        self._calls.add_inference(signature, 1, 0)
        return outputs

    def answers(self, signature: str, x: Rows) -> tuple[Rows, dict[str, Array]]:
        """Return the outputs of a signature, and the masks by output name."""
        calls = _call_count(self._model, signature, len(x))
        returned = self._run(signature, x)
        self._calls.add_inference(signature, calls, len(x))
        return self._main(signature, returned), parts(returned, "mask") if self._model.masks else {}

    def _embeddings(self, x: Rows) -> Array:
        return only(self._main("embed", self._run("embed", x)), "the embedding", "export it with one")

    def _main(self, signature: str, returned: Mapping[str, Array]) -> Rows:
        """Return the main outputs among the outputs of a signature."""
        return rows_of({name: returned[output] for name, output in self._model.main_outputs(signature).items()})

    def _run(self, signature: str, x: Rows) -> dict[str, Array]:
        return _batches(self._runtime(signature), signature, inputs_of(self._model, signature, x))

    def _runtime(self, signature: str) -> Runtime:
        """Return a runtime with the device's state, which a signature that draws numbers or counts changes."""
        return self._state.runtime(changes=self._model.changes[signature], head=signature == "head_infer")

    def _answers(self, scored: Scored) -> dict[str, Any]:
        """Return the outputs, targets, losses and masks of a split, as `model_figures` takes them.

        Raises:
            SimulationError: The correction or the predictor failed.
        """
        model, examples = self._model, scored.examples
        if scored.predictor is not None and not self._predicts:
            x, y = examples.take()
            masks = self.answers("infer", x)[1] if model.masks else {}  # they depend on the inputs only
            outputs = self._predicted(scored.predictor, x)
        else:
            of_head = model.embeds and not model.masks
            x, y = (self.embedded(scored.split, examples) if of_head else examples).take()
            outputs, masks = self.answers("head_infer" if of_head else "infer", x)
            if scored.correction is not None:
                outputs = self._corrected(scored.correction, self.embedded(scored.split, examples).x, outputs)
        losses = {}
        if model.returns_losses:
            losses = losses_of(self._runtime("loss"), examples.take()[0], y, outputs, masks)
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
        arrays = only(embeddings, "embed", advice), only(outputs, "infer", advice)
        with self._errors_of("correction", correction):
            result = correction(*arrays)
            _check_answers(result, self._model, len(arrays[1]))
        return result

    def _errors_of(self, name: str, owner: Any) -> AbstractContextManager[None]:
        what = f"device {self._device}: the {name} failed"
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


def losses_of(runtime: Runtime, x: Rows, y: Rows, outputs: Rows, masks: Mapping[str, Array]) -> dict[str, Array]:
    """Return each example's loss, `[rows]`, from the signature `loss`: the sum as `""`, and that of each named output.

    Args:
        runtime: The model.
        x: `[rows, ...]`.
        y: `[rows, ...]`.
        outputs: The outputs of `infer` for these rows.
        masks: The masks by output name.
    """
    values = prefixed("x", x) | prefixed("y", targets_of(runtime.model, y)) | prefixed("logits", outputs)
    values |= {full("mask", name): mask for name, mask in masks.items()}
    inputs = runtime.model.signatures["loss"].inputs
    # A predictor's answers are float64.
    taken = {name: np.asarray(values[name], tensor.dtype) for name, tensor in inputs.items()}
    returned = _batches(runtime, "loss", taken)
    return {name.removeprefix("losses").removeprefix("_"): losses for name, losses in returned.items()}


def _batches(runtime: Runtime, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a signature for rows, computed batch by batch."""
    rows = len(next(iter(inputs.values())))
    size, fixed = _call_size(runtime.model, signature)
    outputs: dict[str, Array] = {}
    for start in range(0, rows, size):
        batch = {name: array[start : start + size] for name, array in inputs.items()}
        if fixed:
            batch = {name: padded(array, size) for name, array in batch.items()}
        for name, array in runtime.run(signature, **batch).items():
            if not start:
                outputs[name] = np.empty((rows, *array.shape[1:]), array.dtype)
            outputs[name][start : start + size] = array[: rows - start]
    if rows:
        return outputs
    declared = runtime.model.signatures[signature].outputs
    return {name: np.zeros((0, *tensor.shape[1:]), tensor.dtype) for name, tensor in declared.items()}


def _call_count(model: TrainableModel, signature: str, rows: int) -> int:
    return math.ceil(rows / _call_size(model, signature)[0])


def _call_size(model: TrainableModel, signature: str) -> tuple[int, bool]:
    """Return the rows of one call, and whether each call needs exactly that many.

    Raises:
        ModelError: The file has no such signature.
    """
    if signature not in model.signatures:
        raise ModelError(
            f"{model.where}: has no signature {signature!r}; export the model with it, for example by "
            f"needs = frozenset({{{signature!r}}}) of the strategy"
        )
    rows = next(iter(model.signatures[signature].inputs.values())).shape[0]
    return (rows, True) if rows > 0 else (model.batch_size, False)
