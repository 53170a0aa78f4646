"""Stacked updates of a round, in pieces to avoid float64 copies of all updates."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.aggregators.base import with_numbers
from odt_sim.errors import StrategyError
from odt_sim.model.tensors import array_of
from odt_sim.strategies.base import Tensors, Update

Numbers = NDArray[np.float64]

PIECE = 1 << 12  # numbers per device in a piece: 3 MiB for 100 devices


def per_number(each: Mapping[int, Update], rule: Callable[[Numbers], Numbers]) -> Tensors:
    """Combine each number of the updates independently.

    Args:
        each: The updates by device id.
        rule: A function from `[numbers, devices]` to `[numbers]`.

    Raises:
        StrategyError: Devices sent different tensors.
    """
    first = next(iter(each.values())).tensors
    combined = {}
    for name, arrays in aligned(each).items():
        numbers = np.concatenate([rule(piece.T.copy()) for piece in pieces(arrays)] or [np.zeros(0)])
        combined[name] = with_numbers(first[name], numbers)
    return combined


def aligned(each: Mapping[int, Update]) -> dict[str, list[NDArray[Any]]]:
    """Return the devices' arrays of each tensor, in the order of the devices.

    Raises:
        StrategyError: Devices sent tensors with different names or shapes.
    """
    shapes = {id: {name: array_of(t).shape for name, t in update.tensors.items()} for id, update in each.items()}
    first, expected = next(iter(shapes.items()))
    for id, found in shapes.items():
        if found != expected:
            raise StrategyError(
                f"device {id} sent {_shapes_text(found)}, but device {first} sent {_shapes_text(expected)}; send the same "
                "tensors from all devices, or choose aggregator=mean"
            )
    return {name: [array_of(update.tensors[name]) for update in each.values()] for name in expected}


def pieces(arrays: Sequence[NDArray[Any]]) -> Iterator[Numbers]:
    """Yield the arrays' numbers stacked, `[devices, numbers]`, one piece at a time."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, PIECE):
        yield np.stack([numbers[start : start + PIECE] for numbers in flat], dtype=np.float64)


def _shapes_text(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "nothing"


def hostile_devices(fraction: float, devices: int) -> int:
    """Return the number of hostile devices, rounded up: 1 of 4 for a fraction of 0.2."""
    return math.ceil(round(fraction * devices, 9))  # 0.07 * 100 is slightly above 7 in floating point
