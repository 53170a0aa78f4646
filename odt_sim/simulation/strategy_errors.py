"""A strategy or an aggregator is often a user's own code: what it raises becomes one line that says where to look."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from odt_sim.aggregators.base import Aggregator
from odt_sim.errors import InvocationError, OdtSimError, SimulationError
from odt_sim.model.weights import Weights, is_finite
from odt_sim.strategies.base import Strategy, Tensors, array_of


@contextmanager
def blamed(owner: Strategy | Aggregator, where: str, *, passes: type[OdtSimError] = InvocationError) -> Iterator[None]:
    """Turns whatever the block raises into an error that names the strategy or aggregator, the place, the file and the line.

    Where LiteRT fails on a device's examples the strategy is not to blame.

    Args:
        owner: Whose code the block runs.
        where: What it was doing, such as `on device 3 in round 2`.
        passes: The kind of error that is raised as it is.

    Raises:
        InvocationError: LiteRT failed; or another error of the kind that passes.
        SimulationError: The block raised something else.
    """
    try:
        yield
    except passes:
        raise
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        kind = "aggregator" if isinstance(owner, Aggregator) else "strategy"
        raise SimulationError(
            f"{kind} {owner.name}: failed {where} with {message} ({_place(owner, error)}); "
            "correct it, with backend=serial to debug it"
        ) from error


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


def _place(owner: Strategy | Aggregator, error: Exception) -> str:
    """Returns the innermost line of the owner's own file that led to the error, or of whatever raised it."""
    codes = (getattr(member, "__code__", None) for member in vars(type(owner)).values())
    files = {code.co_filename for code in codes if code}
    frames = traceback.extract_tb(error.__traceback__)
    frame = ([frame for frame in frames if frame.filename in files] or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"
