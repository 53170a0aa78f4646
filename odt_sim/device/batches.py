"""Cuts examples into the batches that a model trains on."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.dataset import read_only
from odt_sim.data.dataset_checks import as_targets
from odt_sim.model.trainable import TrainableModel

Array = NDArray[Any]


class Batch(NamedTuple):
    """The rows of one training step; all arrays are read-only.

    Attributes:
        x: `[batch, ...]`.
        y: `[batch, ...]`, as the model takes it.
        sample_weight: `[batch]` float32, by which each row's loss is multiplied before the mean over the batch.
        examples: How many of the rows are there to be learned from; the others fill the batch up.
    """

    x: Array
    y: Array
    sample_weight: NDArray[np.float32]
    examples: int


def batches(model: TrainableModel, x: Array, y: Array) -> Iterator[Batch]:
    """Yields all rows, in order, in batches of the model's size.

    The last one may have fewer rows. Its step is exactly that of the mean over them where the model takes any number of
    rows, or `sample_weight`: its first row fills it up and weighs nothing. Otherwise the first rows fill it up once more.

    Args:
        model: The model to train.
        x: `[rows, ...]`.
        y: `[rows, ...]`; `[rows]` also where the model takes `[batch, 1]`: see `odt_sim.data.dataset_checks`.
    """
    y = as_targets(y, model.y.shape[1:], model.y.dtype)
    size = model.batch_size
    ones = np.ones(size, np.float32)
    for start in range(0, len(x), size):
        stop, real = start + size, min(size, len(x) - start)
        if stop <= len(x) or not model.fixed_batch:
            rows, targets, weight = x[start:stop], y[start:stop], ones[:real]
        elif "sample_weight" in model.capabilities:
            weight = np.zeros(size, np.float32)
            weight[:real] = size / real  # Keras divides the weighted sum by the rows of the batch, zeros included
            rows, targets = padded(x[start:], size), padded(y[start:], size)
        else:
            again = np.arange(start, stop) % len(x)
            rows, targets, weight = x[again], y[again], ones
        yield Batch(read_only(rows), read_only(targets), read_only(weight), real)


def padded(rows: Array, size: int) -> Array:
    """Returns `size` rows, the last of them the first again where there were fewer.

    Rows of zeros would be none of the data's: a model may make NaN of them, as a mean over no word does, and 0 NaN is NaN.
    """
    if len(rows) == size:
        return rows
    return np.concatenate([rows, np.repeat(rows[:1], size - len(rows), 0)])
