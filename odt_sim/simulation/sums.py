"""Sums of updates, in a fixed order, so that their bits do not depend on the backend."""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import SimulationError
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights, is_finite
from odt_sim.simulation.job import Trained
from odt_sim.strategies.base import Tensors, Updates

PIECE = 1 << 18  # numbers that are added at once, so that temporary arrays stay in the processor's cache


def join(parts: Iterable[Trained]) -> Trained:
    """Return the sum of the devices of a block, or of the blocks of a round, added in the order given.

    A sum alone is returned as it is.

    Raises:
        SimulationError: Devices sent a tensor in different shapes.
    """
    parts = iter(parts)
    first = list(islice(parts, 2))
    if len(first) == 1 and not first[0].single:
        return first[0]
    total = Trained()
    for part in chain(first, parts):
        add(total, part)
    return total


def add(total: Trained, part: Trained) -> None:
    """Add a device or a block to a sum, which keeps none of its arrays but those of single updates.

    Raises:
        SimulationError: Devices sent a tensor in different shapes.
    """
    _add_tensors(total, part)
    total.layouts |= part.layouts
    total.weight += part.weight
    total.contributed += part.contributed
    total.excluded |= part.excluded
    total.stateful |= part.stateful
    total.loss_sum += part.loss_sum
    total.loss_weight += part.loss_weight
    total.bytes_up += part.bytes_up
    total.train_calls += part.train_calls
    total.infer_calls += part.infer_calls
    total.each |= part.each
    total.unweighted |= part.unweighted
    total.utilities |= part.utilities


def mean(trained: Trained, participants: int) -> Updates:
    """Return a round's mean, float32, weighted except for the unweighted tensors.

    Args:
        trained: The sum of the round.
        participants: The number of devices that cohorts are drawn from.
    """
    means: dict[str, Weights | NDArray[Any]] = {}
    for name, total in trained.sums.items():
        weight = len(trained.contributed) if name in trained.unweighted else trained.weight
        layout, average = trained.layouts[name], (total / weight).astype(np.float32)
        means[name] = average if layout is None else Weights(layout, average)
    return Updates(means, trained.weight, len(trained.contributed), participants, trained.each)


def scaled(tensors: Tensors, factor: float) -> Tensors:
    """Return tensors, float32, times a factor; those of an update are changes, so that a smaller factor changes less."""
    return {
        name: tensor * factor if isinstance(tensor, Weights) else tensor * np.float32(factor)
        for name, tensor in tensors.items()
    }


def check_tensors(tensors: Tensors, what: str) -> None:
    """Check the types of tensors that a strategy or an aggregator made.

    Raises:
        TypeError: An entry is neither `Weights` nor an array.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, Weights | np.ndarray):
            raise TypeError(f"{what} {name!r} is a {type(tensor).__name__}, expected Weights or a numpy array")


def check_finite(tensors: Tensors, what: str) -> None:
    """Check the types and the values of tensors that an aggregator made of finite updates.

    Raises:
        TypeError: An entry is neither `Weights` nor an array.
        ValueError: A value is NaN or infinite.
    """
    check_tensors(tensors, what)
    for name, tensor in tensors.items():
        if not is_finite(array_of(tensor)):
            raise ValueError(f"{what} {name!r} holds NaN or infinity, expected finite numbers")


def _add_tensors(total: Trained, part: Trained) -> None:
    for name, array in part.sums.items():
        factor = part.weight if part.single and name not in part.unweighted else 1.0  # a factor of 1 changes no bit
        if name in total.sums:
            _check_shapes(name, total.sums[name].shape, array.shape, part.contributed)
            _add_array(total.sums[name], array, factor)
        else:
            total.sums[name] = array.astype(np.float64, order="C")
            total.sums[name] *= factor


def _check_shapes(name: str, expected: tuple[int, ...], found: tuple[int, ...], devices: Sequence[int]) -> None:
    if found != expected:
        raise SimulationError(
            f"update {name!r}: of shape {found} from device {devices[0]}, {expected} from those before it; "
            "send the same shape from all devices"
        )


def _add_array(total: NDArray[np.float64], array: NDArray[Any], weight: float) -> None:
    """Add `weight * array`, in float64 and piece by piece."""
    flat, given = total.reshape(-1), array.reshape(-1)
    for start in range(0, flat.size, PIECE):
        piece = given[start : start + PIECE].astype(np.float64)
        piece *= weight
        flat[start : start + PIECE] += piece
