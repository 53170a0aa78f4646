"""The batches of several steps, stacked in arrays, for small models that run several steps per call."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Array, only, rows_at
from odt_sim.device.batches import Batch, targets_of
from odt_sim.device.examples import Examples
from odt_sim.model.trainable import TrainableModel

Positions = NDArray[np.int64]
ADVICE = "such a model runs its steps one at a time"


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
    own: Array | None = None  # the rows of all examples, once a step needs them
    start = 0
    for size in sizes:
        while start + size <= len(positions):
            steps = slice(start, start + size)
            some, start = positions[steps], start + size
            if len(examples) <= some.size:
                if own is None:
                    own = x if index is None else rows_at(x, index)
                rows, places = own, some.astype(np.int32)
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
