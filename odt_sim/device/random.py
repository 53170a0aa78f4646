"""Random generators that depend on their purpose only, and random rows that fit a model."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.store.columns import Rows, rows_of
from odt_sim.model.contract.manifest import CTC
from odt_sim.model.reading.flatbuffer import TensorInfo
from odt_sim.model.trainable import TrainableModel

LENGTH = 8
"""The size of an axis that is not fixed, such as the words of a text."""


def generator_for(*purpose: str | int) -> np.random.Generator:
    """Return the generator `numpy.random.default_rng(purpose)`, with texts as base-256 numbers.

    Splitting integers into 32-bit words takes half of numpy's time, so the words are cached.

    Args:
        purpose: Texts and non-negative integers, such as a seed, a device and a round.
    """
    words = np.array([word for part in purpose for word in _words(part)], np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


@lru_cache(4096)
def _words(part: str | int) -> list[int]:
    """Return the 32-bit words of an integer, the lowest first."""
    number = int.from_bytes(part.encode(), "big") if isinstance(part, str) else int(part)
    return [number >> shift & 0xFFFFFFFF for shift in range(0, max(1, number.bit_length()), 32)]


def random_rows(model: TrainableModel, random: np.random.Generator, count: int) -> tuple[Rows, Rows]:
    """Return `x` and `y` with `count` rows; integers are 0 or 1 where the model does not declare the valid ones."""
    x = rows_of({name: _values(tensor, random, count) for name, tensor in model.inputs.items()})
    y = {name: _targets(model, name, random, count) for name in model.targets}
    for output in model.outputs:
        if output.loss == CTC:
            y[output.name] = _spelled(y[output.name], model.answers[output.name].shape[1])
    return x, rows_of(y)


def _spelled(labels: NDArray[Any], frames: int) -> NDArray[Any]:
    """Return labels of at least 1, padded with zeros; they are so few that `frames` can spell them if all are equal."""
    return np.where(np.arange(labels.shape[1]) < (frames + 1) // 2, np.maximum(labels, 1), 0).astype(labels.dtype)


def _values(tensor: TensorInfo, random: np.random.Generator, count: int) -> NDArray[Any]:
    shape = _shape(tensor, count)
    integers = np.issubdtype(tensor.dtype, np.integer)
    return (random.integers(0, 2, shape) if integers else random.normal(size=shape)).astype(tensor.dtype)


def _shape(tensor: TensorInfo, count: int) -> tuple[int, ...]:
    return (count, *(LENGTH if size < 0 else size for size in tensor.shape[1:]))


def _targets(model: TrainableModel, name: str, random: np.random.Generator, count: int) -> NDArray[Any]:
    """Return values, class labels, or one-hot rows where the model takes those."""
    tensor, classes = model.targets[name], model.classes_by_target[name]
    if classes is None:  # a regression, or a custom loss, which may take labels
        return _values(tensor, random, count)
    shape = _shape(tensor, count)
    if len(shape) > 1 and shape[-1] == classes and not np.issubdtype(tensor.dtype, np.integer):
        return np.eye(classes, dtype=tensor.dtype)[random.integers(0, classes, shape[:-1])]
    return random.integers(0, classes, shape).astype(tensor.dtype)
