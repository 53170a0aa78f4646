"""Checks and conversions of data: at the source (`check`), and for a model (`check_against`, `as_targets`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from odt_sim.data.dataset import Array, Dataset
from odt_sim.errors import DataError

_INT32 = np.iinfo(np.int32)


class Examples(Protocol):
    """The common attributes of `Dataset` and `FederatedData`."""

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def x(self) -> Array:
        """`[examples, ...]` inputs."""

    @property
    def y(self) -> Array:
        """`[examples, ...]` targets."""


def check(dataset: Dataset) -> Dataset:
    """Convert a data set to the form that `Dataset` documents.

    Inputs: uint8 values are pixels and become float32 in 0..1, and `[examples, height, width]` gets a channel axis; other
    integers (tokens) become int32, floats float32. Targets: integers are class labels and become int32 `[examples]`; the
    default of `classes` is the largest label plus one. Floats become float32; with `classes` they must be one-hot rows.

    Raises:
        DataError: Lengths differ, there is no example, a value is not a finite number, or a label is out of range.
    """
    where = f"data {dataset.name}"
    x, y = np.asarray(dataset.x), np.asarray(dataset.y)
    users = None if dataset.users is None else np.asarray(dataset.users)
    sequences = None if dataset.sequences is None else np.asarray(dataset.sequences)
    arrays = {"x": x, "y": y, "users": users, "sequences": sequences}
    _check_lengths(where, {key: array for key, array in arrays.items() if array is not None})
    if users is not None and (users.ndim != 1 or users.dtype.kind not in "iuSU"):
        raise DataError(
            f"{where}: users is {users.dtype} {list(users.shape)}, expected one integer or string for each example"
        )
    if sequences is not None and (sequences.ndim != 1 or sequences.dtype.kind not in "iu"):
        raise DataError(
            f"{where}: sequences is {sequences.dtype} {list(sequences.shape)}, expected one integer for each example"
        )
    y, classes = _targets(where, y, dataset.classes)
    return replace(dataset, x=_inputs(where, x), y=y, users=users, classes=classes, sequences=sequences)


def _check_lengths(where: str, arrays: Mapping[str, Array]) -> None:
    shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items())
    if any(array.ndim == 0 for array in arrays.values()):
        raise DataError(f"{where}: found {shapes}; expected arrays with the examples on the first axis")
    if len({len(array) for array in arrays.values()}) > 1:
        raise DataError(f"{where}: lengths differ: {shapes}; each example needs one entry in each array")
    if not len(arrays["x"]):
        raise DataError(f"{where}: has no examples: {shapes}; expected at least one")


def _inputs(where: str, x: Array) -> Array:
    if x.dtype != np.uint8:
        return _numbers(where, "x", x)
    pixels = x.astype(np.float32)
    pixels /= 255
    return pixels[..., np.newaxis] if pixels.ndim == 3 else pixels


def _numbers(where: str, key: str, array: Array) -> Array:
    """Return floats and booleans as finite float32, integers as int32."""
    if array.dtype.kind not in "fbiu":
        raise DataError(f"{where}: {key} has dtype {array.dtype}, expected numbers; convert it to float32 or int32")
    if array.dtype.kind in "iu":
        if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
            raise DataError(f"{where}: {key} reaches {array.min()}..{array.max()}, expected integers that fit int32")
        return array.astype(np.int32, copy=False)
    with np.errstate(over="ignore"):  # overflow becomes infinite and is refused below
        floats = array.astype(np.float32, copy=False)
    _check_finite(where, key, floats)
    return floats


def check_finite(dataset: Dataset) -> None:
    """Check that inputs and targets are finite, also in a data set that no source has checked.

    Raises:
        DataError: A value is NaN or infinite.
    """
    for key, array in (("x", np.asarray(dataset.x)), ("y", np.asarray(dataset.y))):
        if array.dtype.kind == "f":
            _check_finite(f"data {dataset.name}", key, array)


def _check_finite(where: str, key: str, floats: Array) -> None:
    finite = np.isfinite(floats)
    if not finite.all():
        first = int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
        raise DataError(
            f"{where}: {key} has {finite.size - np.count_nonzero(finite)} values that are NaN or infinite in "
            f"{floats.dtype}, the first in example {first}; remove or fill them"
        )


def _targets(where: str, y: Array, classes: int | None) -> tuple[Array, int | None]:
    if classes is not None and classes < 1:
        raise DataError(f"{where}: classes is {classes}, expected at least 1, or null for regression")
    y = _numbers(where, "y", y)
    if y.dtype == np.float32:
        if classes is not None and y.shape[1:] != (classes,):
            raise DataError(
                f"{where}: y is float32 {list(y.shape)}, but classes is {classes}; expected integer labels or one-hot "
                f"rows of {classes}; leave classes out for regression"
            )
        return y, classes
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    classes = int(y.max()) + 1 if classes is None else classes
    check_labels(where, y, classes, "store y as float32 for regression")
    return y, classes


def check_labels(where: str, y: Array, classes: int, advice: str) -> None:
    """Check that integer labels are in 0..classes-1.

    Raises:
        DataError: A label is out of range.
    """
    wrong = (y < 0) | (y >= classes)
    if wrong.any():
        first = np.argwhere(wrong)[0]
        raise DataError(
            f"{where}: {np.count_nonzero(wrong)} labels are out of range, the first is {y[tuple(first)]} in example "
            f"{first[0]}; expected 0..{classes - 1} for {classes} classes; {advice}"
        )


def as_targets(y: Array, shape: Sequence[int], dtype: DTypeLike, classes: int | None = None) -> Array:
    """Return targets in the form of a model's train signature, where a conversion is unambiguous.

    `[rows]` becomes `[rows, 1]` for a model with one output. Integers and booleans that are all 0 or 1 become floats for
    a model that takes floats, as binary cross-entropy does; labels of a classifier that takes floats become one-hot rows or
    floats. Other targets are returned unchanged.

    Args:
        y: `[rows, ...]`.
        shape: The shape of one of the model's targets, without the batch axis.
        dtype: Its dtype.
        classes: The number of the model's classes; None for regression or an unknown loss.
    """
    wanted = np.dtype(dtype)
    if classes is not None and wanted.kind == "f" and y.dtype.kind in "iu" and y.ndim == 1:
        if tuple(shape) in ((), (1,)):
            return y.reshape(-1, *shape).astype(wanted)
        if tuple(shape) == (classes,) and ((y >= 0) & (y < classes)).all():
            return np.eye(classes, dtype=wanted)[y]
    if y.ndim == 1 and tuple(shape) == (1,):
        y = y[:, np.newaxis]
    if wanted.kind == "f" and y.dtype.kind in "biu" and ((y == 0) | (y == 1)).all():
        y = y.astype(wanted)
    return y


def check_against(
    data: Examples,
    x_shape: Sequence[int],
    x_dtype: DTypeLike,
    y_shape: Sequence[int],
    y_dtype: DTypeLike,
    classes: int | None,
) -> None:
    """Check that a model can train on data, after the conversion of targets by `as_targets`.

    Args:
        data: A `Dataset` or `FederatedData`.
        x_shape: The shape of one of the model's examples, without the batch axis.
        x_dtype: Its dtype.
        y_shape: The shape of one target, without the batch axis.
        y_dtype: Its dtype.
        classes: The number of the model's classes; None for regression.

    Raises:
        DataError: A shape or dtype differs, or a label is out of range.
    """
    _check_fit(data.name, "x", data.x, x_shape, x_dtype)
    labels = classes is not None and np.issubdtype(data.y.dtype, np.integer)
    if labels and tuple(y_shape) == (classes,):  # before their conversion to one-hot rows
        check_labels(f"data {data.name}", data.y, classes or 0, "choose a model with an output for each class")
    _check_fit(data.name, "y", as_targets(data.y, y_shape, y_dtype, classes), y_shape, y_dtype)
    if labels:
        check_labels(f"data {data.name}", data.y, classes or 0, "choose a model with an output for each class")


def _check_fit(name: str, key: str, array: Array, shape: Sequence[int], dtype: DTypeLike) -> None:
    if array.shape[1:] != tuple(shape):
        raise DataError(
            f"data {name}: {key} has shape {list(array.shape[1:])} per example, the model's train signature takes "
            f"{list(shape)}; choose a model for this data or reshape it"
        )
    if array.dtype != np.dtype(dtype):
        raise DataError(
            f"data {name}: {key} has dtype {array.dtype}, the model's train signature takes {np.dtype(dtype)}; "
            "choose a model for this data or convert it"
        )
