"""Inputs of training steps beyond examples, `sample_weight`, `learning_rate` and `mu`, as the manifest describes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TRAIN_INPUTS = ("x", "y", "sample_weight", "learning_rate", "mu")
"""The known inputs of training steps; the first two are required, or `x_<name>` and `y_<name>`."""


@dataclass(frozen=True)
class TrainInput:
    """One further input of `train`.

    Attributes:
        name: Its name in the signature, an identifier.
        shape: Its shape; None as the first size if it has a value for each example.
        dtype: Its dtype.
        default: The value of all its elements if a device passes none.
    """

    name: str
    shape: tuple[int | None, ...] = ()
    dtype: str = "float32"
    default: float = 0.0

    def __post_init__(self) -> None:
        """Check the form.

        Raises:
            ValueError: A field has another form.
        """
        if not self.name.isidentifier() or self.name in TRAIN_INPUTS:
            raise ValueError(
                f"training input {self.name!r}, expected an identifier other than {', '.join(TRAIN_INPUTS)}"
            )
        if any(not isinstance(size, int) or size < 1 for size in self.sizes):
            raise ValueError(f"training input {self.name} has shape {list(self.shape)}, expected sizes of at least 1")
        if np.dtype(self.dtype).kind not in "fiu":
            raise ValueError(f"training input {self.name} has dtype {self.dtype}, expected numbers")

    @property
    def of_rows(self) -> bool:
        """Whether it has a value for each example."""
        return self.shape[:1] == (None,)

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """The shape; without the first axis if it has a value for each example."""
        return self.shape[1:] if self.of_rows else self.shape

    def filled(self, rows: int) -> NDArray[Any]:
        """Return its default for a batch of some rows."""
        shape = [rows if size is None else size for size in self.shape]
        return np.full(shape, self.default, self.dtype)


def read_train_inputs(fields: Sequence[Mapping[str, Any]]) -> tuple[TrainInput, ...]:
    """Return the inputs of a manifest's JSON.

    Raises:
        ValueError: One has another form, or two have the same name.
        KeyError, TypeError: A field is missing or unknown.
    """
    inputs = tuple(TrainInput(**{**each, "shape": tuple(each["shape"])}) for each in fields)
    if len({each.name for each in inputs}) < len(inputs):
        raise ValueError("two training inputs have the same name")
    return inputs
