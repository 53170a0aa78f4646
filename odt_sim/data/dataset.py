"""A data set before it is spread over devices."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import DataError

Array = NDArray[Any]
Indices = NDArray[np.int64]


def read_only(array: Array) -> Array:
    """Return a read-only view of an array; a read-only array itself."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Dataset:
    """All examples of a data set. What a source returns went through `odt_sim.data.dataset_checks.check`.

    Attributes:
        name: What messages and reports call it.
        x: `[examples, ...]` float32 or int32 inputs; images have a channel axis.
        y: Targets: `[examples]` int32 class labels; `[examples, classes]` float32 class probabilities (one-hot);
            `[examples, ...]` int32 labels of each position of a sequence; or `[examples, ...]` float32 values.
        users: `[examples]` whose example each is, as integers or strings; None where the data knows no users.
        classes: The number of classes; None for regression.
        sequences: `[examples]` integers, the recording or text that each example is a part of, whose parts stand in the
            order of time; a split by block cuts each. None where all that a device has is one sequence.
        standardize: Whether each device brings its inputs to one scale by its own training examples, once they are split.
    """

    name: str
    x: Array
    y: Array
    users: Array | None = None
    classes: int | None = None
    sequences: Array | None = None
    standardize: bool = False

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for name in ("x", "y", "users", "sequences"):
            if isinstance(array := getattr(self, name), np.ndarray):
                object.__setattr__(self, name, read_only(array))

    @property
    def has_labels(self) -> bool:
        """Whether each example belongs to one class."""
        return self.classes is not None and (self.y.ndim == 1 or self.y.dtype == np.float32)

    def labels(self) -> NDArray[np.int32]:
        """Returns the `[examples]` class of each example; that of the largest value where `y` is one-hot.

        Raises:
            DataError: The examples have no single class each.
        """
        if not self.has_labels:
            kind = "values to regress" if self.classes is None else f"labels of shape {list(self.y.shape[1:])}"
            raise DataError(
                f"data {self.name}: each example needs one class label, found {kind}; {self._if_one_hot()}"
                "use a partition that needs no labels: iid, quantity_skew or by_user"
            )
        return self.y if self.y.ndim == 1 else self.y.argmax(axis=1).astype(np.int32)

    def _if_one_hot(self) -> str:
        """Returns the advice for rows that look like class probabilities while nobody said how many classes there are."""
        y = self.y
        if y.ndim != 2 or y.shape[1] < 2 or y.dtype != np.float32 or (y < 0).any() or not np.allclose(y.sum(axis=1), 1):
            return ""
        classes = y.shape[1]
        return (
            f"if its rows are one-hot, say so: data.classes={classes} of an .npz, or return "
            f"odt_sim.data.Dataset(name, x, y, classes={classes}) from a function; else "
        )


def digest_of(*arrays: Array | None) -> str:
    """Returns 16 hexadecimal digits that differ where a value, a shape or a dtype does; None is like no array."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            plain = np.ascontiguousarray(array.astype(np.str_) if array.dtype.kind == "O" else array)
            digest.update(f"{plain.dtype.str} {plain.shape}".encode())
            digest.update(plain.view(np.uint8).data if plain.size else b"")
    return digest.hexdigest()[:16]
