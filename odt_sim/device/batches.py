"""Batches of a model's size, and for small models the stacked batches of calls that run several steps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.store.columns import Array, Columns, Rows, arrays_of, only, read_only, rows_at
from odt_sim.device.examples import Examples, targets_of
from odt_sim.errors import DataError
from odt_sim.model.trainable import TrainableModel

MOST_PREPARED, MOST_BYTES = 8, 1 << 24
"""The most batches to prepare before the first of their steps, and the most bytes of their inputs."""
ADVICE = "such a model runs its steps one at a time"
Positions = NDArray[np.int64]
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


def given_batch(model: TrainableModel, x: Any, y: Any, what: str) -> Batch:
    """Return the batch of given rows, at most one batch; `what` is the name for errors, such as `device 3`.

    Raises:
        DataError: The rows do not fit the model, or there are none or more than a batch.
    """
    rows = Examples.checked(model, x, y, f"{what}, batch")
    if not 0 < len(rows) <= model.batch_size:
        raise DataError(f"{what}: expected a batch of 1 to {model.batch_size} rows, found {len(rows)}")
    return next(batches(model, rows.x, rows.y))


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
    rows, real = np.arange(start, len(x)), len(x) - start
    weight: NDArray[np.float32] = np.ones(real, np.float32)
    if model.fixed_batch:
        rows = padded_order(model, np.arange(len(x)))[start:]
        weight = padding_weights(model, (len(x),))[start:]
    further = {name: array[rows] for name, array in inputs.items()}
    return Batch(read_only(x[rows]), read_only(y[rows]), read_only(weight), real, further)


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
    """Yield groups of batches, each prepared before the first of its steps.

    A step evicts Python's code and data from the processor's caches: prepared one by one, a CNN's steps take 4% more CPU.
    Large batches come one by one: a group would take much memory, and their steps are so long that little is gained.
    """
    left = iter(batches)
    for first in left:
        size = sum(array.nbytes for array in arrays_of(first.x).values())
        yield [first, *islice(left, max(min(MOST_PREPARED, MOST_BYTES // max(size, 1)) - 1, 0))]


class StackedBatches(NamedTuple):
    """The rows of several training steps.

    Attributes:
        x: `[rows, ...]`: all of the device's examples, or the rows that these steps use if those are fewer.
        positions: `[steps, batch]` int32: the rows of `x` that each step uses.
        y: `[steps, batch, ...]`, as the model takes it.
        sample_weight: `[steps, batch]` float32.
    """

    x: Array
    positions: NDArray[np.int32]
    y: Array
    sample_weight: NDArray[np.float32]

    def first(self) -> Batch:
        """Return the first batch; its padding counts as examples."""
        rows = self.positions[0]
        return Batch(rows_at(self.x, rows), self.y[0], self.sample_weight[0], len(rows))


def stacked_batches(
    model: TrainableModel,
    examples: Examples,
    orders: Sequence[Positions],
    weights: Array | None,
    sizes: Sequence[int],
) -> Iterator[StackedBatches]:
    """Yield the batches of passes over examples, equal to the batches of `batches` for each pass.

    Args:
        model: A model that takes batches of a fixed size.
        examples: The examples, with one array as `x` and one as `y`.
        orders: The positions of each pass.
        weights: `[examples]`, weights of the examples; None for no weights.
        sizes: The numbers of steps to yield at a time, from the largest to 1; the largest that can be filled is used.
    """
    positions = np.concatenate([padded_order(model, order) for order in orders]).reshape(-1, model.batch_size)
    sample_weight = padding_weights(model, tuple(map(len, orders))).reshape(positions.shape)
    if weights is not None:
        sample_weight = sample_weight * weights[positions]
    x, index = only(examples.x, model.where, ADVICE), examples.index
    y = only(targets_of(model, examples.y if index is None else examples.y[index]), model.where, ADVICE)
    all_rows: Array | None = None  # once a step needs them
    start = 0
    for size in sizes:
        while start + size <= len(positions):
            steps = slice(start, start + size)
            some, start = positions[steps], start + size
            if len(examples) <= some.size:
                if all_rows is None:
                    all_rows = x if index is None else rows_at(x, index)
                rows, places = all_rows, some.astype(np.int32)
            else:
                rows, places = (
                    rows_at(x, (some if index is None else index[some]).reshape(-1)),
                    _consecutive(some.shape),
                )
            yield StackedBatches(rows, places, rows_at(y, some), sample_weight[steps])


@lru_cache(16)
def _consecutive(shape: tuple[int, int]) -> NDArray[np.int32]:
    return np.arange(prod(shape), dtype=np.int32).reshape(shape)


def padded_order(model: TrainableModel, order: Positions) -> Positions:
    """Return an order of positions, extended to fill the last batch; see `odt_sim.device.batches.batches`."""
    missing = -len(order) % model.batch_size
    if not missing:
        return order
    if "sample_weight" in model.capabilities:
        first = order[len(order) + missing - model.batch_size]
        return np.append(order, np.full(missing, first))
    return np.resize(order, len(order) + missing)


def padding_weights(model: TrainableModel, examples: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the weights of the rows of passes, given their numbers of examples; read-only.

    Padding has weight 0, and the last batch of a pass counts as much as a full one.
    """
    return _padding_weights(model.batch_size, "sample_weight" in model.capabilities, examples)


@lru_cache(32)
def _padding_weights(batch_size: int, weighted: bool, examples: tuple[int, ...]) -> NDArray[np.float32]:
    passes = []
    for count in examples:
        missing = -count % batch_size
        weights = np.ones(count + missing, np.float32)
        if missing and weighted:
            weights[count:] = 0
            real = batch_size - missing
            weights[count - real : count] = batch_size / real
        passes.append(weights)
    weights = np.concatenate(passes)
    weights.flags.writeable = False
    return weights
