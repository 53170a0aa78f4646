"""A data set before it is partitioned over devices."""

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
    """All examples of a data set, as read-only arrays. Sources return it checked by `odt_sim.data.dataset_checks.check`.

    Attributes:
        name: The name in messages and reports.
        x: `[examples, ...]` float32 or int32 inputs; images have a channel axis.
        y: Targets: `[examples]` int32 class labels; `[examples, classes]` float32 class probabilities (one-hot);
            `[examples, ...]` int32 labels of each position of a sequence; or `[examples, ...]` float32 values.
        users: `[examples]` the user id of each example, integers or strings; None if there are no natural users.
        classes: The number of classes; None for regression.
        sequences: `[examples]` integers, the recording or text of each example. The examples of a sequence are in the
            order of time, and a split by block cuts each sequence. None if a device's examples are one sequence.
        standardize: Whether each device standardizes its inputs by its own training examples, after the split.
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
        """Return the class of each example, `[examples]`; the largest value's class if `y` is one-hot.

        Raises:
            DataError: The examples do not have one class each.
        """
        if not self.has_labels:
            kind = "values to regress" if self.classes is None else f"labels of shape {list(self.y.shape[1:])}"
            raise DataError(
                f"data {self.name}: expected one class label for each example, found {kind}; {self._one_hot_advice()}"
                "use a partition that needs no labels: iid, quantity_skew or by_user"
            )
        return self.y if self.y.ndim == 1 else self.y.argmax(axis=1).astype(np.int32)

    def _one_hot_advice(self) -> str:
        """Return advice for rows that look one-hot while the number of classes is missing."""
        y = self.y
        if y.ndim != 2 or y.shape[1] < 2 or y.dtype != np.float32 or (y < 0).any() or not np.allclose(y.sum(axis=1), 1):
            return ""
        classes = y.shape[1]
        return (
            f"if its rows are one-hot, set data.classes={classes} for an .npz file, or return "
            f"odt_sim.data.Dataset(name, x, y, classes={classes}) from a function; else "
        )


def digest_of(*arrays: Array | None) -> str:
    """Return 16 hexadecimal digits of a hash of the values, shapes and dtypes; None counts as no array."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            plain = np.ascontiguousarray(array.astype(np.str_) if array.dtype.kind == "O" else array)
            digest.update(f"{plain.dtype.str} {plain.shape}".encode())
            digest.update(plain.view(np.uint8).data if plain.size else b"")
    return digest.hexdigest()[:16]
