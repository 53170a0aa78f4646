"""What the check compares: two sides that infer and train on the same rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.emit.signatures import Variable

Array = NDArray[Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Part:
    """One call of a signature in the check.

    Attributes:
        signature: The signature's name.
        title: What the call is, for errors.
        inputs: The inputs with a value for each row by name, `[rows, ...]`, without padding.
        further: The other inputs by name.
        rows: The number of rows.
        padded_to: The rows of the file's batch if the file pads these rows; else None.
        trains: Whether the call changes variables.
    """

    signature: str
    title: str
    inputs: Arrays
    further: Arrays
    rows: int
    padded_to: int | None = None
    trains: bool = True

    def moved(self, random: np.random.Generator) -> "Part":
        """Return this part with floats of its rows moved by one unit in the last place."""
        return replace(self, inputs={name: moved(values, random) for name, values in self.inputs.items()})


class Side(Protocol):
    """A model, or the file that it became."""

    def run(self, part: Part) -> dict[str, Array]:
        """Run a part and return its outputs by name.

        Raises:
            CannotRun: This side has no result for these rows.
        """

    def states(self) -> dict[str, Any]:
        """Return the weights and slots by their names in the file's signatures, as arrays or tensors."""


class Reference(Side, Protocol):
    """The model that a file comes from; its variables are as they were after `reset`."""

    def reset(self, random: np.random.Generator | None = None) -> None:
        """Set all variables to their values before the check; `random` moves weights by one unit in the last place."""

    def rounding(self) -> dict[str, Array]:
        """Return which elements of weights had a last gradient of rounding only, to which Adam gives steps of full size.

        Weights with unknown gradients are left out.
        """


def before_last(reference: Reference, parts: Sequence[Part], random: np.random.Generator | None = None) -> None:
    """Bring a reference into the state before the last of some parts; `random` moves weights and rows as in `reset`."""
    reference.reset(random)
    for part in parts[:-1]:
        reference.run(part.moved(random) if random else part)


class CannotRun(Exception):  # noqa: N818 - no error: the check goes on with other rows, or without this part
    """A model does not run on the rows of a check.

    Attributes:
        part: The part that it cannot run.
    """

    def __init__(self, reason: str, part: Part | None = None) -> None:
        super().__init__(reason)
        self.part = part


def moved(values: Array, random: np.random.Generator) -> Array:
    """Return floats moved by one unit in the last place, up or down; other values are returned unchanged."""
    if values.dtype.kind != "f":
        return values
    directions = np.where(random.integers(0, 2, values.shape) > 0, np.inf, -np.inf).astype(values.dtype)
    return np.asarray(np.nextafter(values, directions))


class Snapshot:
    """The values of variables at one time; those that stay the same take no memory."""

    def __init__(self, variables: Iterable[Variable], weights: Iterable[Variable]) -> None:
        """Keep values.

        Args:
            variables: The variables.
            weights: Those of them that `restore` can move.
        """
        distinct = {id(variable): variable for variable in variables}
        self._values = [(variable, tf.convert_to_tensor(variable)) for variable in distinct.values()]
        self._weights = set(map(id, weights))

    def restore(self, random: np.random.Generator | None = None) -> None:
        """Set all variables to their values; `random` moves weights by one unit in the last place."""
        for variable, value in self._values:
            variable.assign(moved(value.numpy(), random) if random and id(variable) in self._weights else value)
