"""A device's examples: rows of arrays that devices share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.columns import Array, Columns, Rows, arrays_of, read_only, rows_at, rows_of, several
from odt_sim.device.batches import targets_of
from odt_sim.errors import DataError
from odt_sim.model.flatbuffer import TensorInfo
from odt_sim.model.trainable import TrainableModel


@dataclass(frozen=True, eq=False)
class Examples:
    """Selected rows of `x` and `y`; the arrays are read-only, because devices share them.

    Attributes:
        x: `[rows, ...]`, with rows of other devices; several inputs are columns.
        y: `[rows, ...]`; several targets are columns.
        index: `[examples]` int64, the selected rows; None for all.
    """

    x: Rows
    y: Rows
    index: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        object.__setattr__(self, "x", read_only(self.x))
        object.__setattr__(self, "y", read_only(self.y))

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.x) if self.index is None else len(self.index)

    def take(self, order: NDArray[np.int64] | None = None) -> tuple[Rows, Rows]:
        """Return `x` and `y` of the examples, read-only, in the given order of positions or in their own."""
        rows = self.index if order is None else order if self.index is None else self.index[order]
        return (
            (self.x, self.y) if rows is None else (read_only(rows_at(self.x, rows)), read_only(rows_at(self.y, rows)))
        )

    def with_embeddings(self, embeddings: Array) -> "Examples":
        """Return the examples with embeddings `[examples, ...]`, in their order, in place of `x`."""
        return Examples(embeddings, self.y if self.index is None else self.y[self.index])

    @classmethod
    def checked(cls, model: TrainableModel, x: Any, y: Any, what: str) -> "Examples":
        """Return all rows of `x` and `y`, once they are checked against the model.

        Args:
            model: The model.
            x: `[examples, ...]`, or a mapping or tuple of several inputs.
            y: `[examples, ...]`, or several targets, converted by `odt_sim.data.dataset_checks.as_targets`.
            what: The name for errors, such as `device 3, train`.

        Raises:
            DataError: A shape, a dtype, the lengths or a value does not fit.
        """
        x = checked_inputs(x, model.inputs, f"{what}, x")
        targets = targets_of(model, named_rows(y, tuple(model.targets), f"{what}, y"))
        y = checked_inputs(targets, model.targets, f"{what}, y")
        if len(x) != len(y):
            raise DataError(f"{what}: x has {len(x)} examples and y has {len(y)}; give one y for each x")
        losses = {output.name: output.loss for output in model.outputs}
        for name, array in arrays_of(y).items():
            if losses.get(name) == "sparse_categorical_crossentropy":
                _check_labels(model, array, model.classes_by_target[name], _name(what, name))
        return cls(x, y)


def _check_labels(model: TrainableModel, y: Array, classes: int | None, what: str) -> None:
    if classes and y.size and not (y.min() >= 0 and y.max() < classes):
        wrong = y.min() if y.min() < 0 else y.max()
        raise DataError(
            f"{what}: label {wrong} is out of range, {model.name} has the classes 0..{classes - 1}; "
            "renumber the labels or choose a model with more outputs"
        )


def named_rows(values: Any, names: tuple[str, ...], what: str) -> Rows:
    """Return values as rows with a model's names; an array, or the only column, for a single empty name.

    Raises:
        DataError: The values are single and the names several, or the reverse, or a name differs.
    """
    if isinstance(values, Columns) or several(values) or (len(names) > 1 and isinstance(values, list)):
        columns = Columns.of(values, what)
        if names != ("",):
            return columns.named(names, what)
        if len(columns.names) == 1:
            return columns.arrays[0]
        raise DataError(f"{what}: expected a single array, found {len(columns.names)}: {columns.shapes}; give one")
    if names != ("",):
        raise DataError(f"{what}: expected the arrays {', '.join(names)}, found a single one; give a mapping by name")
    return _array(values, what)


def checked_inputs(values: Any, tensors: Mapping[str, TensorInfo], what: str) -> Rows:
    """Return values as rows that fit a model's inputs or targets by name, each checked by `checked_rows`.

    Raises:
        DataError: A name, a row's shape or a dtype does not fit, or a value is too large, NaN or infinite.
    """
    rows = arrays_of(named_rows(values, tuple(tensors), what))
    return rows_of({name: checked_rows(array, tensors[name], _name(what, name)) for name, array in rows.items()})


def _name(what: str, name: str) -> str:
    return f"{what}, {name}" if name else what


def checked_rows(values: Any, tensor: TensorInfo, what: str) -> Array:
    """Return `values` as an array that fits the input `tensor`; convert only between integers and between floats.

    Raises:
        DataError: A row's shape or the dtype does not fit, or a value is too large, NaN or infinite.
    """
    array = _array(values, what)
    try:
        array = _converted(array, np.dtype(tensor.dtype))
    except ValueError as error:
        raise DataError(f"{what}: {error}") from error
    if array.ndim != len(tensor.shape) or any(
        size not in (-1, given) for size, given in zip(tensor.shape[1:], array.shape[1:], strict=True)
    ):
        raise DataError(
            f"{what}: expected examples of shape {list(tensor.shape[1:])}, found {list(array.shape[1:])}; "
            "reshape them or choose another model"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise DataError(f"{what}: example {row} holds NaN or infinity; clean the data")
    return array


def _array(values: Any, what: str) -> Array:
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{what}: {error}") from error


def _converted(array: Array, wanted: np.dtype[Any]) -> Array:
    if array.dtype == wanted:
        return array
    if array.dtype.kind == wanted.kind == "f":
        with np.errstate(over="ignore"):  # overflow becomes infinite and is refused later
            return array.astype(wanted)
    if array.dtype.kind not in "iu" or wanted.kind not in "iu":
        raise ValueError(f"expected {wanted}, found {array.dtype}; convert it")
    limits = np.iinfo(wanted)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise ValueError(f"expected {wanted}, found the integers {array.min()}..{array.max()}; renumber them")
    return array.astype(wanted)
