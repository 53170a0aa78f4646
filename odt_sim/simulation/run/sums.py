"""Sums of updates in a fixed order, so that their bits do not depend on the backend."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.errors import SimulationError
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights, is_finite
from odt_sim.simulation.executors.job import Task, Trained
from odt_sim.strategies.base import Strategy, Tensors, Updates

PIECE = 1 << 16  # numbers per addition, so that temporary arrays stay in the processor's cache


def join(parts: Iterable[Trained]) -> Trained:
    """Return the sum of the devices of a block, or of the blocks of a round, added in the given order.

    Raises:
        SimulationError: Devices sent a tensor in different shapes.
    """
    total = Trained()
    for part in parts:
        add(total, part)
    return total


def joined(task: Task, parts: Sequence[Any]) -> Any:
    """Return the result of a block, given the results of its parts."""
    return join(parts) if task.kind == "train" else [row for rows in parts for row in rows]


def add(total: Trained, part: Trained) -> None:
    """Add a device or a block to a sum; of its arrays, the sum keeps only those of individual updates.

    Raises:
        SimulationError: Devices sent a tensor in different shapes.
    """
    for name in part.sums:
        _add_tensor(total, name, part)
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


def check_change(strategy: Strategy, tensors: Tensors, device: Device, received: Tensors) -> None:
    """Check that an update does not hold a device's weights, as in other simulators, instead of their change.

    `Strategy.aggregate`, unless a strategy has its own, would add them to the server's weights, and the run would learn the
    wrong thing silently.

    Raises:
        ValueError: The tensor `weights` is equal to the device's weights, and not to their change.
    """
    sent, before = tensors.get("weights"), received.get("weights")
    if type(strategy).aggregate is not Strategy.aggregate:
        return
    if not (isinstance(sent, Weights) and isinstance(before, Weights)) or sent.layout != before.layout:
        return
    trained = device.parameters(sent.layout).vector
    # A change that is much larger than the weights equals the trained weights, too, up to rounding.
    if np.array_equal(sent.vector, trained) and not np.array_equal(sent.vector, trained - before.vector):
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


def _add_tensor(total: Trained, name: str, part: Trained) -> None:
    """Add one tensor of a part in float64, piece by piece."""
    term = part.sums[name]
    factor = part.weight if part.single and name not in part.unweighted else 1.0  # 1 changes no bit
    if name not in total.sums:
        total.sums[name] = term.astype(np.float64, order="C")
        total.sums[name] *= factor
        return
    if term.shape != total.sums[name].shape:
        raise SimulationError(
            f"update {name!r}: has shape {term.shape} from device {part.contributed[0]}, but {total.sums[name].shape} from "
            "the devices before it; send the same shape from all devices"
        )
    sums, term = total.sums[name].reshape(-1), term.reshape(-1)
    for start in range(0, sums.size, PIECE):
        piece = term[start : start + PIECE].astype(np.float64)
        piece *= factor
        sums[start : start + PIECE] += piece
