"""What a model answers to any number of rows, batch by batch, and how often a device has its model run."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.batches import padded
from odt_sim.device.runtime import Runtime
from odt_sim.model.contract import answer_of
from odt_sim.model.trainable import TrainableModel

Array = NDArray[Any]


@dataclass
class Calls:
    """How often a device has had its model run.

    Attributes:
        train: Steps.
        infer: Batches of which it has asked an answer or embeddings. Embeddings that a cache holds from an earlier round
            count as if they were computed, so that the number is the same on every backend.
    """

    train: int = 0
    infer: int = 0


def call_count(model: TrainableModel, signature: str, rows: int) -> int:
    """Returns how many calls of `infer`, `embed` or `head_infer` a number of rows takes."""
    return math.ceil(rows / _size(model, signature)[0])


def _size(model: TrainableModel, signature: str) -> tuple[int, bool]:
    """Returns how many rows one call takes, and whether it takes no fewer."""
    (rows,) = model.signatures[signature].inputs.values()
    return (rows.shape[0], True) if rows.shape[0] > 0 else (model.batch_size, False)


def answers(runtime: Runtime, signature: str, x: Array) -> Array:
    """Returns what `infer`, `embed` or `head_infer` says of any number of rows.

    Args:
        runtime: Holds the weights.
        signature: Which.
        x: `[rows, ...]`.
    """
    size, fixed = _size(runtime.model, signature)
    taken = [x[start : start + size] for start in range(0, len(x), size)]
    parts = [runtime.infer(padded(part, size) if fixed else part, signature) for part in taken]
    if not parts:
        return np.zeros((0, *answer_of(runtime.model.signatures[signature]).shape[1:]), np.float32)
    return np.concatenate(parts)[: len(x)]
