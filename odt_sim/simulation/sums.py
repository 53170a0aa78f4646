"""Sums of updates, in a fixed order, so that their bits do not depend on the backend."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import SimulationError
from odt_sim.model.weights import Layout, Weights, is_finite
from odt_sim.simulation.job import Trained
from odt_sim.strategies.base import Tensors, Update, Updates, array_of

PIECE = 1 << 14  # numbers that are added at once: 128 KiB of them


def join(parts: Iterable[Trained]) -> Trained:
    """Adds what devices of a block, or the blocks of a round, did: in the order given, so that the bits are the same.

    Raises:
        SimulationError: Devices sent a tensor in different shapes.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    layouts: dict[str, Layout | None] = {}
    each: dict[int, Update] = {}
    contributed, excluded, stateful = list[int](), dict[int, str](), dict[int, int]()
    unweighted = frozenset[str]()
    weight = loss_sum = loss_weight = 0.0
    bytes_up = train_calls = infer_calls = 0
    for part in parts:
        for name, array in part.sums.items():
            factor = part.weight if part.single and name not in part.unweighted else 1.0  # which changes no bit
            if name in sums:
                _check_shapes(name, sums[name].shape, array.shape, part.contributed)
                _add(sums[name], array, factor)
            else:
                sums[name] = array.astype(np.float64, order="C")
                sums[name] *= factor
        layouts |= part.layouts
        unweighted |= part.unweighted
        each |= part.each
        contributed += part.contributed
        excluded |= part.excluded
        stateful |= part.stateful
        weight += part.weight
        loss_sum += part.loss_sum
        loss_weight += part.loss_weight
        bytes_up += part.bytes_up
        train_calls += part.train_calls
        infer_calls += part.infer_calls
    return Trained(
        sums=sums,
        layouts=layouts,
        weight=weight,
        contributed=tuple(contributed),
        excluded=excluded,
        stateful=stateful,
        loss_sum=loss_sum,
        loss_weight=loss_weight,
        bytes_up=bytes_up,
        train_calls=train_calls,
        infer_calls=infer_calls,
        each=each,
        unweighted=unweighted,
    )


def mean(trained: Trained, participants: int) -> Updates:
    """Returns a round's mean, float32, of a cohort out of `participants` devices: weighted, but for what is not."""
    means: dict[str, Weights | NDArray[Any]] = {}
    for name, total in trained.sums.items():
        weight = len(trained.contributed) if name in trained.unweighted else trained.weight
        layout, average = trained.layouts[name], (total / weight).astype(np.float32)
        means[name] = average if layout is None else Weights(layout, average)
    return Updates(means, trained.weight, len(trained.contributed), participants, trained.each)


def check_tensors(tensors: Tensors, what: str) -> None:
    """Checks what a strategy made, where it says `Tensors`.

    Raises:
        TypeError: An entry is neither `Weights` nor an array.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, Weights | np.ndarray):
            raise TypeError(f"{what} {name!r} is a {type(tensor).__name__}, expected Weights or a numpy array")


def check_finite(tensors: Tensors, what: str) -> None:
    """Checks what an aggregator made of finite updates: tensors, as `check_tensors` asks, and finite again.

    Raises:
        TypeError: An entry is neither `Weights` nor an array.
        ValueError: A value is NaN or infinite.
    """
    check_tensors(tensors, what)
    for name, tensor in tensors.items():
        if not is_finite(array_of(tensor)):
            raise ValueError(f"{what} {name!r} holds NaN or infinity, expected finite numbers")


def _check_shapes(name: str, expected: tuple[int, ...], found: tuple[int, ...], devices: Sequence[int]) -> None:
    if found != expected:
        raise SimulationError(
            f"update {name!r}: of shape {found} from device {devices[0]}, {expected} from those before it; "
            "send the same shape from all devices"
        )


def _add(total: NDArray[np.float64], array: NDArray[Any], weight: float) -> None:
    """Adds `weight * array`, in float64 and in pieces that stay in the processor's cache on the way."""
    flat, given = total.reshape(-1), array.reshape(-1)
    for start in range(0, flat.size, PIECE):
        piece = given[start : start + PIECE].astype(np.float64)
        piece *= weight
        flat[start : start + PIECE] += piece
