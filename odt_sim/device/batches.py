"""Batches of a model's size."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Array, Columns, Rows, arrays_of, read_only, rows_of
from odt_sim.data.model_checks import as_targets
from odt_sim.model.trainable import TrainableModel

MOST_PREPARED, MOST_BYTES = 8, 1 << 24
"""The most batches to prepare before the first of their steps, and the most bytes of their inputs."""
NO_INPUTS: Mapping[str, Array] = MappingProxyType({})


class Batch(NamedTuple):
    """The rows of one training step; all arrays are read-only.

    Attributes:
        x: `[batch, ...]`; several inputs are columns.
        y: `[batch, ...]`, as the model takes it; several targets are columns.
        sample_weight: `[batch]` float32, the factor of each row's loss before the mean over the batch.
        examples: The number of real rows; the others are padding.
        inputs: Values of further training inputs by name; values for each example have the batch as first axis.
    """

    x: Rows
    y: Rows
    sample_weight: NDArray[np.float32]
    examples: int
    inputs: Mapping[str, Array] = NO_INPUTS


def batches(model: TrainableModel, x: Rows, y: Rows, inputs: Mapping[str, Array] = NO_INPUTS) -> Iterator[Batch]:
    """Yield all rows, in order, in batches of the model's size.

    The last batch may have fewer real rows. If the model takes any number of rows, the batch is not padded. If the
    model takes `sample_weight`, padding has weight 0 and the loss is the mean over the real rows. Else the first rows
    are repeated.

    Args:
        model: The model to train.
        x: `[rows, ...]`.
        y: `[rows, ...]`, converted by `targets_of`.
        inputs: Values of each row for further training inputs, `[rows, ...]`, by name.
    """
    yield from cut(model, x, targets_of(model, y), inputs)


def targets_of(model: TrainableModel, y: Rows) -> Rows:
    """Convert targets to the form that a model takes, by `odt_sim.data.model_checks.as_targets`."""
    if not isinstance(y, Columns):
        target = model.targets[""]
        return as_targets(y, target.shape[1:], target.dtype, model.classes)
    return rows_of(
        {
            name: as_targets(
                array, model.targets[name].shape[1:], model.targets[name].dtype, model.classes_by_target[name]
            )
            for name, array in arrays_of(y).items()
        }
    )


def cut(model: TrainableModel, x: Rows, y: Rows, inputs: Mapping[str, Array] = NO_INPUTS) -> Iterator[Batch]:
    """Yield the batches of `batches`, for converted targets `y`, or for the positions of rows as `x` and `y`."""
    size = model.batch_size
    x, y, ones = read_only(x), read_only(y), read_only(np.ones(size, np.float32))
    full = len(x) - len(x) % size
    for start in range(0, full, size):
        stop = start + size
        further = {name: array[start:stop] for name, array in inputs.items()} if inputs else NO_INPUTS
        yield Batch(x[start:stop], y[start:stop], ones, size, further)
    if full < len(x):
        yield _last(model, x, y, inputs, full)


def _last(model: TrainableModel, x: Rows, y: Rows, inputs: Mapping[str, Array], start: int) -> Batch:
    """Return the last batch, which has fewer real rows than the model's batch size."""
    size, real = model.batch_size, len(x) - start
    if not model.fixed_batch:
        rows, targets, weight = x[start:], y[start:], np.ones(real, np.float32)
        further = {name: array[start:] for name, array in inputs.items()}
    elif "sample_weight" in model.capabilities:
        weight = np.zeros(size, np.float32)
        weight[:real] = size / real  # Keras divides the weighted sum by the rows of the batch, zeros included
        rows, targets = padded(x[start:], size), padded(y[start:], size)
        further = {name: padded(array[start:], size) for name, array in inputs.items()}
    else:
        again = np.arange(start, start + size) % len(x)
        rows, targets, weight = x[again], y[again], np.ones(size, np.float32)
        further = {name: array[again] for name, array in inputs.items()}
    return Batch(read_only(rows), read_only(targets), read_only(weight), real, further)


@overload
def padded(rows: Array, size: int) -> Array: ...


@overload
def padded(rows: Rows, size: int) -> Rows: ...


def padded(rows: Rows, size: int) -> Rows:
    """Return `size` rows, padded with the first row.

    Zeros are unsuitable: a model may return NaN for them, and NaN times a weight of 0 is NaN.
    """
    if len(rows) == size:
        return rows
    if isinstance(rows, Columns):
        return Columns(rows.names, tuple(padded(array, size) for array in rows.arrays))
    return np.concatenate([rows, np.repeat(rows[:1], size - len(rows), 0)])


def prepared(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Yield groups of batches, each prepared before the first of its steps; see `InterpreterCall.each`.

    Large batches come one by one: a group would take much memory, and their steps are so long that little is gained.
    """
    left = iter(batches)
    for first in left:
        size = sum(array.nbytes for array in arrays_of(first.x).values())
        yield [first, *islice(left, max(min(MOST_PREPARED, MOST_BYTES // max(size, 1)) - 1, 0))]
