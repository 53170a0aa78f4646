"""Keep padding rows out of batch statistics and activity regularizers.

Rows with sample weight 0 pad a partial batch to the exported size. The tensor that a layer normalizes or regularizes
may be a table of weights, or merge the batch with other axes, such as frames. A trace with another number of examples
shows which: the rows of a table stay as many, and those of a batch change in proportion.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.parameters import all_layers
from odt_sim.export.keras.random_batches import TRIALS, drawn
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.ops.creation import shared

Order = Callable[[tf.Tensor, int], tf.Tensor | None]
"""Returns a value for each row, given a value for each example and the number of rows per example; None if all rows count."""

ORDERS: tuple[Callable[[tf.Tensor, int], tf.Tensor], ...] = (
    lambda values, each: tf.repeat(values, each),
    lambda values, each: tf.tile(values, [each]),
)
"""The orders of rows that merge other axes with the batch: the rows of an example are adjacent, or `batch` rows apart."""


class HiddenRows(Exception):  # noqa: N818 - becomes an ExportError that names the layer
    """The rows that belong to an example are not known, so padding may not be left out."""


@dataclass(frozen=True)
class Call:
    """A call of a layer in a trace with another number of examples.

    Attributes:
        examples: The number of examples.
        shape: The shape of the normalized or regularized tensor.
        order: The order of its rows, if there are several for each example; None if that is unknown.
    """

    examples: int
    shape: tuple[int | None, ...]
    order: Order | None

    def weights(self, x: tf.Tensor, sample_weight: tf.Tensor) -> tf.Tensor | None:
        """Return the weight of each row of the tensor in another trace; None if all rows count.

        Raises:
            HiddenRows: The examples are not on the first axis, or their order is unknown.
        """
        count, rows = sample_weight.shape[0], x.shape[0]
        if self.shape[0] == self.examples and rows == count:
            return sample_weight
        if count is None or self.shape == tuple(x.shape):
            return None
        if self.order is None or rows * self.examples != self.shape[0] * count:
            raise HiddenRows
        return self.order(sample_weight, rows // count)


def weights_of_batch(x: tf.Tensor, sample_weight: tf.Tensor) -> tf.Tensor:
    """Return the weights of a tensor with the batch as the first axis."""
    if x.shape[0] != sample_weight.shape[0]:
        raise HiddenRows
    return sample_weight


def other_count(batch_size: int | None) -> int:
    """Return a number of examples that differs from the batch size."""
    return batch_size - 1 if batch_size and batch_size > 2 else 3


def has_own_code(model: keras.Model) -> bool:
    """Return whether a model runs the user's code; Keras' layers keep the batch as the first axis."""
    layers = list(all_layers(model))
    operations = [operation for layer in layers for operation in getattr(layer, "operations", ())]
    functions = any(not isinstance(operation, keras.layers.Layer) for operation in operations)
    return functions or any(map(_runs_own_code, layers))


def _runs_own_code(layer: keras.layers.Layer) -> bool:
    package = type(layer).__module__.partition(".")[0]
    if package == "odt_sim":
        return isinstance(layer, keras.Model)  # a PyTorch module or a SavedModel
    return package != "keras" or isinstance(layer, keras.layers.Lambda)


def normalizations(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Return the BatchNormalization layers of a model."""
    return [layer for layer in all_layers(model) if isinstance(layer, keras.layers.BatchNormalization)]


def regularized(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers of a model with an activity regularizer."""
    return [layer for layer in all_layers(model) if getattr(layer, "activity_regularizer", None) is not None]


@contextmanager
def recorded(model: keras.Model) -> Iterator[list[tf.Tensor]]:
    """Collect the tensors that a model normalizes or regularizes while a step is traced.

    BatchNormalization takes its moving statistics, so that it does not mix rows.
    """
    tensors: list[tf.Tensor] = []

    def noting(function: Any) -> Any:
        def call(inputs: tf.Tensor, *further: Any, **named: Any) -> Any:
            tensors.append(tf.convert_to_tensor(inputs))
            return function(tensors[-1], *further, **named)

        return call

    layers, others = normalizations(model), regularized(model)
    before = [layer.activity_regularizer for layer in others]
    for layer in layers:
        layer.call = noting(layer.call)  # shadows the class's method
        layer._moments = lambda *_, layer=layer: (layer.moving_mean.value, layer.moving_variance.value)
    for layer, own in zip(others, before, strict=True):
        layer.activity_regularizer = noting(own)
    try:
        yield tensors
    finally:
        for layer in layers:
            del layer.call, layer._moments
        for layer, own in zip(others, before, strict=True):
            layer.activity_regularizer = own


def calls_of(trace: Trace, tensors: Sequence[tf.Tensor], examples: int) -> list[Call]:
    """Return the calls of a trace that recorded `tensors`, in order."""
    inside = [x for x in tensors if x.shape.rank and x.graph is trace.concrete.graph]
    merged = [x for x in inside if x.shape[0] and x.shape[0] > examples and x.shape[0] % examples == 0]
    of_first = dict(zip(map(id, merged), _rows_of_first(trace, merged), strict=True)) if merged else {}
    orders = [_order(of_first.get(id(x), []), examples) for x in tensors]
    return [Call(examples, tuple(x.shape), order) for x, order in zip(tensors, orders, strict=True)]


def _rows_of_first(trace: Trace, tensors: Sequence[tf.Tensor]) -> list[list[bool]]:
    """Return whether each row of each tensor changes with the first example, on random batches."""
    random, given = np.random.default_rng(0), list(trace.arguments.values())
    run = trace.concrete.prune(trace.concrete.inputs[: len(given)], list(tensors))
    changed = [np.zeros(x.shape[0], bool) for x in tensors]
    for _ in range(TRIALS):
        one, other = ([tf.constant(drawn(spec, random)) for spec in given] for _ in range(2))
        mixed = [tf.concat([a[:1], b[1:]], 0) if a.shape.rank else b for a, b in zip(one, other, strict=True)]
        for rows, a, b in zip(changed, run(*other), run(*mixed), strict=True):
            rows |= np.any(np.reshape(a != b, [len(rows), -1]), 1)
    return [rows.tolist() for rows in changed]


def _order(of_first: list[bool], examples: int) -> Order | None:
    first, each = tf.one_hot(0, examples), len(of_first) // examples
    return next((order for order in ORDERS if each and (order(first, each).numpy() > 0).tolist() == of_first), None)


@contextmanager
def without_padding(model: keras.Model, sample_weight: tf.Tensor, calls: Sequence[Call]) -> Iterator[None]:
    """Make BatchNormalization and activity regularizers ignore rows with weight 0 while a training step is traced.

    Args:
        model: The model.
        sample_weight: `[batch]`.
        calls: The calls of these layers, in order; beyond them, the batch is the first axis.
    """
    layers, others = normalizations(model), regularized(model)
    foreign = [layer for layer in all_layers(model) if hasattr(layer, "sample_weight")]
    before = [layer.activity_regularizer for layer in others]
    problems: list[str] = []  # raised later, because Keras wraps errors inside a layer in pages of text
    weights_of = _weights_of(sample_weight, calls, problems)
    for layer, own in zip(others, before, strict=True):
        _check_regularizer(layer, own, sample_weight)
    for layer in layers:
        _normalize_real_rows(layer, weights_of)
    for layer in foreign:
        layer.sample_weight = sample_weight
    try:
        for layer, own in zip(others, before, strict=True):
            layer.activity_regularizer = _of_real_rows(layer, own, weights_of)
        yield
    finally:
        for layer, own in zip(others, before, strict=True):
            layer.activity_regularizer = own
        for layer in foreign:
            layer.sample_weight = None
        for layer in layers:
            del layer._moments, layer.call
    if problems:
        raise ExportError(problems[0])


WeightsOf = Callable[..., tf.Tensor | None]
"""Returns the weight of each row of the tensor that a layer is called on, given both; None if all rows count."""


def _weights_of(sample_weight: tf.Tensor, calls: Sequence[Call], problems: list[str]) -> WeightsOf:
    following = iter(calls)

    def weights_of(layer: keras.layers.Layer, x: tf.Tensor, *, learns: bool = True) -> tf.Tensor | None:
        call = next(following, None)
        if not learns:
            return None
        try:
            weights = weights_of_batch(x, sample_weight) if call is None else call.weights(x, sample_weight)
            if weights is not None and getattr(layer, "axis", None) == 0:
                raise HiddenRows
        except HiddenRows:
            problems.append(
                f"layer {layer.name!r}: {type(layer).__name__} expects the batch as the first axis, found shape "
                f"{list(x.shape)} for {sample_weight.shape[0]} examples; call it before the transpose or reshape that "
                "moves the batch, or export with batch_size=None"
            )
            return None
        return weights

    return weights_of


def _normalize_real_rows(layer: keras.layers.BatchNormalization, weights_of: WeightsOf) -> None:
    """Shadow a layer's methods by ones that ignore rows with weight 0."""
    own_call, own_moments = layer.call, layer._moments
    weights: list[tf.Tensor | None] = []  # of the current call

    def call(inputs: tf.Tensor, training: Any = None, mask: tf.Tensor | None = None) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)  # a table may be a variable
        weights[:] = [weights_of(layer, inputs, learns=bool(training and layer.trainable))]
        return own_call(inputs, training=training, mask=mask)

    def moments(inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        if weights[0] is not None and mask is None:
            return real_moments(inputs, list(layer._reduction_axes), weights[0])
        if weights[0] is not None and mask is not None:
            real = tf.reshape(tf.not_equal(weights[0], 0.0), [-1] + [1] * (len(mask.shape) - 1))
            mask = tf.logical_and(tf.cast(mask, tf.bool), real)
        mean, variance = own_moments(inputs, mask)
        return mean, variance

    layer.call, layer._moments = call, moments


def _share_of(sample_weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return the share of each row in a mean over the rows with nonzero weight, computed once per graph."""

    def share() -> tf.Tensor:
        real = tf.cast(tf.not_equal(sample_weight, 0.0), dtype)
        return real / tf.maximum(tf.reduce_sum(real), 1.0)

    return shared(("share", sample_weight.ref(), dtype), share)


def real_moments(x: tf.Tensor, axes: list[int], sample_weight: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean and variance over the rows with nonzero weight: sum_i r_i mean(X_i) / sum_i r_i, r_i in {0, 1}.

    The mean within each row comes first: a mask of the size of X would dominate the cost. The hand-written gradient,
    dX_i = r_i / (sum_j r_j n) (dmean + 2 dvariance (X_i - mean)) for n elements per row and mean, halves the passes
    over X compared with a GradientTape.

    Args:
        x: `[batch, ...]`.
        axes: The axes to reduce, including 0.
        sample_weight: `[batch]`.

    Returns:
        Two tensors with the shape of the remaining axes.
    """
    share = _share_of(sample_weight, x.dtype)
    within = [axis for axis in axes if axis != 0]
    shape = [1 if axis in axes else x.shape[axis] for axis in range(len(x.shape))]

    def mean_of(values: tf.Tensor) -> tf.Tensor:
        rows = tf.reduce_mean(values, within) if within else values
        return tf.reduce_sum(rows * tf.reshape(share, [-1] + [1] * (len(rows.shape) - 1)), 0)

    def moments(x: tf.Tensor) -> Any:
        mean = mean_of(x)

        def gradient(mean_gradient: tf.Tensor, variance_gradient: tf.Tensor) -> tf.Tensor:
            count = prod(x.shape[axis] for axis in within)
            slope = variance_gradient * (2.0 / count)
            constant = mean_gradient * (1.0 / count) - slope * mean
            each = tf.reshape(share, [-1] + [1] * (len(shape) - 1))
            return x * (each * tf.reshape(slope, shape)) + each * tf.reshape(constant, shape)

        return (mean, mean_of(tf.math.squared_difference(x, tf.reshape(mean, shape)))), gradient

    mean, variance = tf.custom_gradient(moments)(x)
    return mean, variance


SUMS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
"""Regularizers that sum over elements and map 0 to 0."""


def _check_regularizer(layer: keras.layers.Layer, own: Any, sample_weight: tf.Tensor) -> None:
    """Check that padding can be kept out of an activity regularizer; any number of rows needs no padding."""
    if type(own) not in SUMS and sample_weight.shape[0] is not None:
        raise ExportError(
            f"layer {layer.name!r}: expected L1, L2 or L1L2 as its activity regularizer, found {type(own).__name__}; "
            "use one of these, or export with batch_size=None"
        )


def _of_real_rows(layer: keras.layers.Layer, own: Any, weights_of: WeightsOf) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return batch / sum(r) own(r X) with r_i = 1 for real rows, else 0; Keras divides the result by the batch size."""

    def regularizer(x: tf.Tensor) -> tf.Tensor:
        weights = weights_of(layer, x)
        if weights is None or type(own) not in SUMS:
            return own(x)
        real = tf.cast(tf.not_equal(weights, 0.0), x.dtype)
        rows = tf.reshape(real, [-1] + [1] * (len(x.shape) - 1))
        return own(x * rows) / tf.maximum(tf.reduce_mean(real), 1e-9)

    return regularizer
