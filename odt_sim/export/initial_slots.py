"""Check that the initial values of an optimizer's slots do not depend on the weights.

A device restores the weights of a round but starts with the slots of the file, which were built for the exported weights.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ExportError

Array = NDArray[Any]


def check_initial_slots(
    optimizer: keras.optimizers.Optimizer,
    weights: Sequence[keras.Variable],
    again: Callable[[], keras.optimizers.Optimizer],
) -> None:
    """Check that no slot is derived from the weights, as the averages of ScheduleFreeAdamW and Lookahead are.

    Args:
        optimizer: An optimizer that was built for the weights.
        weights: The trainable weights.
        again: Returns the same optimizer, not yet built.
    """
    if all(map(_is_constant, optimizer.variables)) and not all(map(_is_constant, weights)):
        return
    slots, of_others, of_same = optimizer.variables, _slots_of_others(again, weights), _built(again, weights)
    for slot, other, same in zip(slots, of_others, of_same, strict=True):
        value = np.asarray(slot)
        if np.array_equal(value, same) and not np.array_equal(value, other):  # else it is random
            raise ExportError(
                f"optimizer {type(optimizer).__name__}: its slot {slot.path!r} starts as a function of the weights, "
                "but a device restores other weights next to the slots of the export; use another optimizer, such as "
                "AdamW, or set the slot of your own optimizer in its first step, where `iterations` is 0"
            )


def _is_constant(variable: keras.Variable) -> bool:
    value = np.asarray(variable)
    return value.size == 0 or bool(value.min() == value.max())


def _built(again: Callable[[], keras.optimizers.Optimizer], weights: Sequence[keras.Variable]) -> list[Array]:
    with warnings.catch_warnings(action="ignore"):  # already issued for the first one
        optimizer = again()
    optimizer.build(weights)
    return [np.asarray(slot) for slot in optimizer.variables]


def _slots_of_others(again: Callable[[], keras.optimizers.Optimizer], weights: Sequence[keras.Variable]) -> list[Array]:
    """Return the slots for other values of the same weights; an optimizer may choose its slots by the weights' names."""
    before = [np.asarray(weight) for weight in weights]
    try:
        for weight, value in zip(weights, before, strict=True):
            weight.assign(value + 1.0)
        return _built(again, weights)
    finally:
        for weight, value in zip(weights, before, strict=True):
            weight.assign(value)
