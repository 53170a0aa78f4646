"""Sums of updates in a fixed order, so that their bits do not depend on the backend."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.errors import SimulationError
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights, is_finite
from odt_sim.simulation.job import Trained
from odt_sim.strategies.base import Tensors, Updates

PIECE = 1 << 16  # numbers per addition, so that temporary arrays stay in the processor's cache


def join(parts: Iterable[Trained]) -> Trained:
    """Return the sum of the devices of a block, or of the blocks of a round, added in the given order.

    A single sum is returned unchanged.

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


def add(total: Trained, *parts: Trained) -> None:
    """Add devices or blocks to a sum in the given order; of their arrays, it keeps only those of individual updates.

    Adding several parts at once gives the same bits as adding them one by one, in half the time if the sum exceeds the
    cache.

    Raises:
        SimulationError: Devices sent a tensor in different shapes.
    """
    for name in dict.fromkeys(name for part in parts for name in part.sums):
        _add_tensors(total, name, [part for part in parts if name in part.sums])
    for part in parts:
        _add_rest(total, part)


def _add_rest(total: Trained, part: Trained) -> None:
    """Add all fields except the tensors."""
    total.uneven |= part.uneven
    if total.contributed and part.contributed:
        total.uneven |= total.layouts.keys() ^ part.layouts.keys()
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
        participants: The number of devices from which cohorts are drawn.
    """
    means: dict[str, Weights | NDArray[Any]] = {}
    for name, total in trained.sums.items():
        weight = len(trained.contributed) if name in trained.unweighted else trained.weight
        layout, average = trained.layouts[name], np.asarray(total / weight, np.float32)
        means[name] = average if layout is None else Weights(layout, average)
    return Updates(means, trained.weight, len(trained.contributed), participants, trained.each)


def scaled(tensors: Tensors, factor: float) -> Tensors:
    """Return float32 tensors multiplied by a factor; an update's tensors are changes, a small factor changes little."""
    return {
        name: tensor * factor if isinstance(tensor, Weights) else np.asarray(tensor * np.float32(factor))
        for name, tensor in tensors.items()
    }


def check_tensors(tensors: Tensors, what: str) -> None:
    """Check the types and names of the tensors that a strategy or an aggregator returned.

    Raises:
        TypeError: `tensors` is no mapping, a name is no text, or an entry is neither `Weights` nor an array of numbers.
    """
    if not isinstance(tensors, Mapping):
        raise TypeError(
            f"{what} tensors are a {type(tensors).__name__}, expected a mapping of names to Weights or arrays"
        )
    for name, tensor in tensors.items():
        if not isinstance(name, str):  # files store names as text, so a resumed run would not find this one
            raise TypeError(
                f"{what} {name!r} has a name of type {type(name).__name__}, expected text; use str({name!r})"
            )
        if not isinstance(tensor, Weights | np.ndarray):
            raise TypeError(f"{what} {name!r} is a {type(tensor).__name__}, expected Weights or a numpy array")
        if isinstance(tensor, np.ndarray) and tensor.dtype.kind not in "biuf":
            raise TypeError(f"{what} {name!r} has the dtype {tensor.dtype}, expected an array of numbers")


def check_change(tensors: Tensors, device: Device, received: Tensors) -> None:
    """Check that an update does not hold a device's weights, as in other simulators, instead of their change.

    `Strategy.aggregate` would add them to the server's weights, and the run would learn the wrong thing silently.

    Raises:
        ValueError: The tensor `weights` is equal to the device's weights.
    """
    sent, before = tensors.get("weights"), received.get("weights")
    if not (isinstance(sent, Weights) and isinstance(before, Weights)) or sent.layout != before.layout:
        return
    if before.vector.any() and np.array_equal(sent.vector, device.parameters(sent.layout).vector):
        raise ValueError(
            "the update's 'weights' are the trained weights, but aggregate adds updates to the server's weights; return "
            "their change: device.change_since(received), where received = broadcast['weights']"
        )


def check_finite(tensors: Tensors, what: str) -> None:
    """Check the types and values of the tensors that an aggregator computed from finite updates.

    Raises:
        TypeError: An entry is neither `Weights` nor an array.
        ValueError: A value is NaN or infinite.
    """
    check_tensors(tensors, what)
    for name, tensor in tensors.items():
        if not is_finite(array_of(tensor)):
            raise ValueError(f"{what} {name!r} holds NaN or infinity, expected finite numbers")


def check_combined(combined: Any, given: Updates, *, keeps_updates: bool) -> None:
    """Check the result of an aggregator for finite updates.

    Args:
        combined: The value that the aggregator returned.
        given: The updates that it received.
        keeps_updates: Whether it received the individual updates, without their mean.

    Raises:
        TypeError: The result is no `Updates` or lacks a tensor, or an entry is neither `Weights` nor an array, or is an
            array although devices sent `Weights`.
        ValueError: A value is NaN or infinite.
    """
    if not isinstance(combined, Updates):
        raise TypeError(f"combine returned {type(combined).__name__}, expected Updates")
    check_finite(combined.mean, "the combined update's")
    single = next(iter(given.each.values())).tensors if given.each else {}
    left_out = [name for name in (single if keeps_updates else given.mean) if name not in combined.mean]
    if left_out:
        raise TypeError(f"combine left {left_out[0]!r} out of the mean; return each tensor that devices sent")
    for name, tensor in combined.mean.items():
        if isinstance(given.mean.get(name, single.get(name)), Weights) and not isinstance(tensor, Weights):
            raise TypeError(
                f"the combined update's {name!r} is an array, but the devices sent Weights; create it with "
                "odt_sim.aggregators.base.with_numbers"
            )


def _add_tensors(total: Trained, name: str, parts: Sequence[Trained]) -> None:
    """Add one tensor of the parts in float64, piece by piece."""
    if name not in total.sums:
        first, *parts = parts
        total.sums[name] = first.sums[name].astype(np.float64, order="C")
        total.sums[name] *= _factor(first, name)
    for part in parts:
        _check_shapes(name, total.sums[name].shape, part.sums[name].shape, part.contributed)
    flat = total.sums[name].reshape(-1)
    terms = [(part.sums[name].reshape(-1), _factor(part, name)) for part in parts]
    for start in range(0, flat.size, PIECE):
        sums = flat[start : start + PIECE]
        for term, factor in terms:
            piece = term[start : start + PIECE].astype(np.float64)
            piece *= factor
            sums += piece


def _factor(part: Trained, name: str) -> float:
    """Return a tensor's factor: the weight, or 1, which changes no bit, if it is weighted already or needs no weight."""
    return part.weight if part.single and name not in part.unweighted else 1.0


def _check_shapes(name: str, expected: tuple[int, ...], found: tuple[int, ...], devices: Sequence[int]) -> None:
    if found != expected:
        raise SimulationError(
            f"update {name!r}: has shape {found} from device {devices[0]}, but {expected} from the devices before "
            "it; send the same shape from all devices"
        )
