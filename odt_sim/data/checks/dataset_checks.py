"""Checks and conversions of data at the source; `odt_sim.data.checks.model_checks` checks it for a model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import DTypeLike

from odt_sim._support.checks import Range, fits
from odt_sim._support.text import counted
from odt_sim.data.dataset import Classes, Dataset
from odt_sim.data.store.columns import Array, Columns, Mapped, Rows, arrays_of, is_mapped, rows_of
from odt_sim.errors import DataError

_INT32 = np.iinfo(np.int32)
VOID = (-1, -100, 255)
"""Labels that conventionally mark positions to ignore, such as padding: in Keras, in PyTorch, and in images."""


def check(dataset: Dataset) -> Dataset:
    """Convert a data set to the form that `Dataset` documents.

    Inputs: uint8 values are pixels and become float32 in 0..1, and `[examples, height, width]` gets a channel axis; other
    integers (tokens) become int32, floats float32. Targets: integers are class labels and become int32 `[examples]`; the
    default of `classes` is the largest label plus one. Floats become float32; with `classes` they must be one-hot rows.
    Several inputs or targets are converted separately.

    Raises:
        DataError: Lengths differ, there are no examples, a value is not a finite number, or a label is out of range.
    """
    where = f"data {dataset.name}"
    x, y = _as_rows(dataset.x), _as_rows(dataset.y)
    users, sequences = (
        None if ids is None else _texts(where, key, np.asarray(ids))
        for key, ids in (("users", dataset.users), ("sequences", dataset.sequences))
    )
    parts = None if dataset.parts is None else np.asarray(dataset.parts)
    times = None if dataset.times is None else _numbered(np.asarray(dataset.times))
    arrays = {**_by_key("x", x), **_by_key("y", y), "users": users, "sequences": sequences, "parts": parts}
    _check_lengths(where, {key: array for key, array in arrays.items() if array is not None})
    for key, ids in (("users", users), ("sequences", sequences)):
        if ids is not None and (ids.ndim != 1 or ids.dtype.kind not in "iuU"):
            raise DataError(
                f"{where}: {key} is {ids.dtype} {list(ids.shape)}, expected one integer or string for each example"
            )
    if sequences is not None and sequences.dtype.kind == "U":
        sequences = np.unique(sequences, return_inverse=True)[1]
    if times is not None:
        _check_times(where, times, len(y))
    if parts is not None and (parts.ndim != 1 or not np.isin(parts, (0, 1, 2)).all()):
        raise DataError(f"{where}: parts is {parts.dtype} {list(parts.shape)}, expected 0, 1 or 2 for each example")
    x = rows_of({name: as_inputs(where, _key("x", name), array) for name, array in arrays_of(x).items()})
    y, classes = _all_targets(where, y, dataset.classes)
    if (names := dataset.class_names) and len(names) != classes:
        raise DataError(
            f"{where}: class_names has {counted(len(names), 'name')}, but classes is {classes}; name each class of a single "
            "target, or leave it out"
        )
    return replace(dataset, x=x, y=y, users=users, classes=classes, sequences=sequences, parts=parts, times=times)


def _texts(where: str, key: str, names: Array) -> Array:
    """Convert names that are bytes, as in HDF5 files, or Python strings, as in pandas, to an array of text."""
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        return names.astype(np.str_)
    if names.dtype.kind != "S":
        return names
    try:
        return np.char.decode(names, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: {key} contains bytes that are not UTF-8 text ({error.reason}); convert them"
        ) from error


def _numbered(times: Array) -> Array:
    """Convert dates to numbers in their own unit; a missing date stays as it is, and is refused."""
    return times.astype(np.int64) if times.dtype.kind == "M" and not np.isnat(times).any() else times


def _as_rows(rows: Rows) -> Rows:
    return rows if isinstance(rows, Columns | Mapped) else np.asarray(rows)


def _key(key: str, name: str) -> str:
    """Return the name of an array in messages, such as `x` or `x user`."""
    return f"{key} {name}" if name else key


def _by_key(key: str, rows: Rows) -> dict[str, Array]:
    return {_key(key, name): array for name, array in arrays_of(rows).items()}


def _all_targets(where: str, y: Rows, classes: Classes) -> tuple[Rows, Classes]:
    if not isinstance(y, Columns):
        if isinstance(classes, Mapping):
            raise DataError(f"{where}: classes names {', '.join(classes)}, but y is a single array; pass one number")
        return _targets(where, "y", y, classes)
    if classes is not None and not isinstance(classes, Mapping):
        raise DataError(f"{where}: classes is {classes}, expected a mapping for the targets {', '.join(y.names)}")
    counts = classes or {}
    if unknown := [name for name in counts if name not in y.names]:
        raise DataError(f"{where}: classes names {unknown[0]!r}; the targets are {', '.join(y.names)}")
    checked = {name: _targets(where, _key("y", name), array, counts.get(name)) for name, array in y.items()}
    arrays = tuple(array for array, _ in checked.values())
    return Columns(y.names, arrays), {name: count for name, (_, count) in checked.items()}


def _check_times(where: str, times: Array, examples: int) -> None:
    if times.shape != (examples,) or times.dtype.kind not in "iuf" or not np.isfinite(times).all():
        raise DataError(
            f"{where}: times is {times.dtype} {list(times.shape)}, expected one finite number or date for each of "
            f"{examples} examples"
        )


def _check_lengths(where: str, arrays: Mapping[str, Array]) -> None:
    shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items())
    if any(array.ndim == 0 for array in arrays.values()):
        raise DataError(f"{where}: found {shapes}; expected arrays with the examples on the first axis")
    if len({len(array) for array in arrays.values()}) > 1:
        raise DataError(f"{where}: lengths differ: {shapes}; each array needs one entry per example")
    if not len(next(iter(arrays.values()))):
        raise DataError(f"{where}: has no examples: {shapes}; expected at least one")


def as_inputs(where: str, key: str, x: Array) -> Array:
    """Convert inputs as in `check`: pixels to float32 in 0..1 with a channel axis, other numbers to float32 or int32.

    Args:
        where: The name of the data for errors.
        key: The name of the array for errors.
        x: `[rows, ...]`.

    Raises:
        DataError: A value is not a finite number, or an integer does not fit int32.
    """
    if x.dtype != np.uint8:
        return as_numbers(where, key, x)
    pixels = x.astype(np.float32)
    pixels /= 255
    return pixels[..., np.newaxis] if pixels.ndim == 3 else pixels


def as_numbers(where: str, key: str, array: Array) -> Array:
    """Convert floats and booleans to finite float32 and integers to int32; arrays of a store stay unchanged.

    Args:
        where: The name of the data for errors.
        key: The name of the array for errors.
        array: Values of any shape.

    Raises:
        DataError: A value is not a finite number, or an integer does not fit int32.
    """
    if is_mapped(array):
        return array
    if array.dtype.kind not in "fbiu":
        advice = "convert it to float32 or int32"
        if key.startswith("y") and isinstance(array.flat[0] if array.size else None, str):
            advice = "number the labels from 0: classes, y = np.unique(y, return_inverse=True)"
        raise DataError(f"{where}: {key} has dtype {array.dtype}, expected numbers; {advice}")
    if array.dtype.kind in "iu":
        if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
            raise DataError(
                f"{where}: {key} ranges over {array.min()}..{array.max()}, expected integers that fit int32"
            )
        return array.astype(np.int32, copy=False)
    with np.errstate(over="ignore"):  # values that overflow become infinite and are rejected below
        floats = array.astype(np.float32, copy=False)
    _check_finite(where, key, floats)
    return floats


def _check_finite(where: str, key: str, floats: Array) -> None:
    finite = np.isfinite(floats)
    if not finite.all():
        first = int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
        count = finite.size - np.count_nonzero(finite)
        values, them = ("1 value that is", "it") if count == 1 else (f"{count} values that are", "them")
        raise DataError(
            f"{where}: {key} has {values} NaN or infinite in {floats.dtype}, the first in example {first}; remove or fill "
            f"{them}"
        )


def _targets(where: str, key: str, y: Array, classes: int | None) -> tuple[Array, int | None]:
    if not fits(classes, int | None, Range(least=1)):
        raise DataError(
            f"{where}: classes is {classes!r}, expected a whole number of at least 1, or null for regression"
        )
    if y.dtype == np.bool_ and y.shape[1:] in ((), (1,)):
        y, classes = y.astype(np.int32), classes or 2
    y = as_numbers(where, key, y)
    if y.dtype == np.float32:
        if classes is not None and y.shape[1:] != (classes,):
            raise DataError(
                f"{where}: {key} is float32 {list(y.shape)}, but classes is {classes}; expected integer labels or one-hot "
                f"rows of {classes}; leave classes out for regression"
            )
        return y, classes
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    classes = int(y.max()) + 1 if classes is None else classes
    check_labels(
        where if key == "y" else f"{where}: {key}",
        y,
        classes,
        f"count classes from 0, or store {key} as float32 for regression",
        VOID if y.ndim > 1 else (),  # the model's loss decides whether to ignore them
    )
    return y, classes


def check_labels(
    where: str, y: Array, classes: int, advice: str, ignored: Sequence[int] = (), dtype: DTypeLike = np.float32
) -> None:
    """Check that integer labels are in 0..classes-1 or among the ignored labels.

    Args:
        where: The name of the data for errors.
        y: `[examples, ...]`.
        classes: The number of classes.
        advice: The advice in the error for a label out of range.
        ignored: Labels that need not be classes.
        dtype: The dtype of the model's targets; for an integer dtype, targets are class indices.

    Raises:
        DataError: A label is out of range.
    """
    wrong = ((y < 0) | (y >= classes)) & ~np.isin(y, ignored)
    if wrong.any():
        first = np.argwhere(wrong)[0]
        raise DataError(
            f"{where}: {counted(int(wrong.sum()), 'label')} out of range, the first is {y[tuple(first)]} in "
            f"example {first[0]}; expected 0..{classes - 1} for {classes} classes; "
            + label_advice(y, dtype, y[tuple(first)], advice)
        )


def label_advice(labels: Array, dtype: DTypeLike, label: int, advice: str) -> str:
    """Return the advice for a label out of range; a label that marks ignored positions needs a loss that ignores it.

    Args:
        labels: `[examples, ...]`.
        dtype: The dtype of the model's targets; for an integer dtype, targets are class indices.
        label: The label out of range.
        advice: The advice for other labels.
    """
    void = label in VOID and labels.ndim > 1 and np.dtype(dtype).kind == "i"
    return f"export the model with ignore_class={label} in its loss, or {advice}" if void else advice
