"""The one place where data is checked: on entry (`check`), and against a model (`check_against`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from odt_sim.data.dataset import Array, Dataset
from odt_sim.errors import DataError

_INT32 = np.iinfo(np.int32)


class Examples(Protocol):
    """What `Dataset` and `FederatedData` have in common."""

    @property
    def name(self) -> str:
        """What messages call the data."""

    @property
    def x(self) -> Array:
        """`[examples, ...]` inputs."""

    @property
    def y(self) -> Array:
        """`[examples, ...]` targets."""


def check(dataset: Dataset) -> Dataset:
    """Brings a data set into the form that `Dataset` promises, or says why it cannot be.

    Inputs: uint8 are pixels and become float32 in 0..1, `[examples, height, width]` of them get a channel axis; other
    floats become float32, other integers (tokens) int32. Targets: integers are class labels and become int32,
    `[examples, 1]` of them `[examples]`; without `classes` their number is the largest label plus one. Floats become
    float32, and with `classes` they must be one-hot rows.

    Raises:
        DataError: Lengths differ, there is no example, a value is NaN or infinite or no number, a label is out of range.
    """
    where = f"data {dataset.name}"
    x, y = np.asarray(dataset.x), np.asarray(dataset.y)
    users = None if dataset.users is None else np.asarray(dataset.users)
    sequences = None if dataset.sequences is None else np.asarray(dataset.sequences)
    known = {"x": x, "y": y, "users": users, "sequences": sequences}
    _check_lengths(where, {key: array for key, array in known.items() if array is not None})
    if users is not None and (users.ndim != 1 or users.dtype.kind not in "iuSU"):
        raise DataError(
            f"{where}: users is {users.dtype} {list(users.shape)}, expected one integer or string an example"
        )
    if sequences is not None and (sequences.ndim != 1 or sequences.dtype.kind not in "iu"):
        raise DataError(
            f"{where}: sequences is {sequences.dtype} {list(sequences.shape)}, expected one integer an example"
        )
    y, classes = _targets(where, y, dataset.classes)
    return replace(dataset, x=_inputs(where, x), y=y, users=users, classes=classes, sequences=sequences)


def _check_lengths(where: str, arrays: Mapping[str, Array]) -> None:
    shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items())
    if any(array.ndim == 0 for array in arrays.values()):
        raise DataError(f"{where}: found {shapes}; expected arrays whose first axis counts the examples")
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
    """Returns floats and booleans as finite float32, integers as int32."""
    if array.dtype.kind not in "fbiu":
        raise DataError(f"{where}: {key} has dtype {array.dtype}, expected numbers; convert it to float32 or int32")
    if array.dtype.kind in "iu":
        if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
            raise DataError(f"{where}: {key} reaches {array.min()}..{array.max()}, expected integers that fit int32")
        return array.astype(np.int32, copy=False)
    with np.errstate(over="ignore"):  # what overflows becomes infinite and is reported below
        floats = array.astype(np.float32, copy=False)
    finite = np.isfinite(floats)
    if not finite.all():
        first = int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
        raise DataError(
            f"{where}: values of {key} that are NaN or infinite in float32: {finite.size - np.count_nonzero(finite)}, "
            f"the first in example {first}; remove or fill them"
        )
    return floats


def _targets(where: str, y: Array, classes: int | None) -> tuple[Array, int | None]:
    if classes is not None and classes < 1:
        raise DataError(f"{where}: classes is {classes}, expected at least 1, or null for regression")
    y = _numbers(where, "y", y)
    if y.dtype == np.float32:
        if classes is not None and y.shape[1:] != (classes,):
            raise DataError(
                f"{where}: y is float32 {list(y.shape)}, but classes is {classes}; expected integer labels or one-hot "
                f"rows of {classes}; for regression leave classes out"
            )
        return y, classes
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    classes = int(y.max()) + 1 if classes is None else classes
    check_labels(where, y, classes, "if y is to be regressed, store it as float32")
    return y, classes


def check_labels(where: str, y: Array, classes: int, advice: str) -> None:
    """Checks integer labels.

    Raises:
        DataError: A label is not in 0..classes-1.
    """
    wrong = (y < 0) | (y >= classes)
    if wrong.any():
        first = np.argwhere(wrong)[0]
        raise DataError(
            f"{where}: labels out of range: {np.count_nonzero(wrong)}, the first is {y[tuple(first)]} in example "
            f"{first[0]}; expected 0..{classes - 1} for {classes} classes; {advice}"
        )


def as_targets(y: Array, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Returns targets as a model's train signature takes them; what does not fit in another way comes back as it is.

    One value an example, `[rows]`, becomes `[rows, 1]` for a model that ends in one output; labels that are all 0 or 1, as
    integers or booleans, become floats for a model that takes floats, as binary cross-entropy does.

    Args:
        y: `[rows, ...]`.
        shape: The shape of one target, without the batch axis, that the model takes.
        dtype: Its dtype.
    """
    if y.ndim == 1 and tuple(shape) == (1,):
        y = y[:, np.newaxis]
    wanted = np.dtype(dtype)
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
    """Checks that a model can train on data, once `as_targets` has brought the targets into its form.

    Args:
        data: A `Dataset` or `FederatedData`.
        x_shape: The shape of one example, without the batch axis, that the model's train signature takes.
        x_dtype: Its dtype.
        y_shape: The shape of one target, without the batch axis.
        y_dtype: Its dtype.
        classes: The number of classes that the model tells apart; None for regression.

    Raises:
        DataError: A shape or dtype differs, or a label is no class of the model.
    """
    _check_fit(data.name, "x", data.x, x_shape, x_dtype)
    _check_fit(data.name, "y", as_targets(data.y, y_shape, y_dtype), y_shape, y_dtype)
    if classes is not None and np.issubdtype(data.y.dtype, np.integer):
        check_labels(f"data {data.name}", data.y, classes, "choose a model with an output for each class")


def _check_fit(name: str, key: str, array: Array, shape: Sequence[int], dtype: DTypeLike) -> None:
    if array.shape[1:] != tuple(shape):
        raise DataError(
            f"data {name}: {key} has shape {list(array.shape[1:])} an example, the model's train signature takes "
            f"{list(shape)}; choose a model for this data or reshape it"
        )
    if array.dtype != np.dtype(dtype):
        raise DataError(
            f"data {name}: {key} has dtype {array.dtype}, the model's train signature takes {np.dtype(dtype)}; "
            "choose a model for this data or convert it"
        )
