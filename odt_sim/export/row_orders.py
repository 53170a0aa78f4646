"""The examples that the rows of a normalized or regularized tensor belong to.

Such a tensor may be a table of weights, or merge the batch with other axes, such as frames. A trace with another number of
examples shows which: the rows of a table stay as many, and those of a batch change in proportion.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.export.lowering import Trace
from odt_sim.export.parameters import all_layers
from odt_sim.export.random_batches import TRIALS, drawn

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
    merged = [x for x in tensors if _is_merged(x, examples) and x.graph is trace.concrete.graph]
    of_first = dict(zip(map(id, merged), _rows_of_first(trace, merged), strict=True)) if merged else {}
    orders = [_order(of_first.get(id(x), []), examples) for x in tensors]
    return [Call(examples, tuple(x.shape), order) for x, order in zip(tensors, orders, strict=True)]


def _is_merged(x: tf.Tensor, examples: int) -> bool:
    return bool(x.shape.rank and x.shape[0] and x.shape[0] > examples and x.shape[0] % examples == 0)


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
