"""Checks and conversions of data for a model: its shapes, dtypes, labels and transcripts."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import DTypeLike

from odt_sim.data.checks.dataset_checks import _key, check_labels
from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.federated import FederatedData
from odt_sim.data.store.columns import Array, arrays_of
from odt_sim.errors import DataError
from odt_sim.model.reading.flatbuffer import TensorInfo

OTHER_INPUTS = "choose a model for this data, or convert the data"
OTHER_TARGETS = (
    "choose a model for this data, or pass class labels as integers and a regression's targets as floats; for your own loss, "
    "export with an example batch, (x, y): see docs/export.md, Losses"
)
OTHER_CLASSES = "number labels from 0, or choose a model with one output per class"


def counted_labels(y: Array, ignored: int | None) -> Array:
    """Return the labels that are not ignored, `[labels]`; `y` itself if no label is ignored."""
    return y if ignored is None else y[y != ignored]


def as_targets(y: Array, shape: Sequence[int], dtype: DTypeLike, classes: int | None = None) -> Array:
    """Convert targets to the form of a model's train signature if the conversion is unambiguous.

    `[rows]` becomes `[rows, 1]` for a model with one output. Integers and booleans that are all 0 or 1 become floats
    for a model with float targets, as with binary cross-entropy; labels become one-hot rows or floats for a classifier
    with float targets. Other targets are returned unchanged.

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
    data: Dataset | FederatedData,
    inputs: Mapping[str, TensorInfo],
    targets: Mapping[str, TensorInfo],
    classes: Mapping[str, int | None],
    ignored: Mapping[str, int | None] | None = None,
) -> None:
    """Check that a model can train on data, after the conversion of targets by `as_targets`.

    Args:
        data: The data.
        inputs: The model's inputs by name; a single input has the empty name.
        targets: The model's targets by name.
        classes: The number of classes of each target; None for regression.
        ignored: The label that each target's loss ignores, which need not be a class; None for none.

    Raises:
        DataError: A name, shape or dtype differs, or a label is out of range.
    """
    for key, rows, expected in (("x", data.x, inputs), ("y", data.y, targets)):
        arrays = arrays_of(rows)
        if arrays.keys() != expected.keys():
            raise DataError(
                f"data {data.name}: {key} {_described(arrays)}, the model's train signature takes {_named(key, expected)}; "
                "choose a model for this data, or give its arrays the same names and order"
            )
    for name, x in arrays_of(data.x).items():
        _check_fit(data.name, _key("x", name), x, inputs[name].shape[1:], inputs[name].dtype, OTHER_INPUTS)
    for name, y in arrays_of(data.y).items():
        _check_target(data.name, _key("y", name), y, targets[name], classes[name], (ignored or {}).get(name))


def _described(arrays: Mapping[str, Array]) -> str:
    return "is a single array" if [*arrays] == [""] else f"has the arrays {', '.join(arrays)}"


def _named(key: str, expected: Mapping[str, TensorInfo]) -> str:
    return f"a single {key}" if [*expected] == [""] else f"{', '.join(expected)} as {key}"


def _check_target(name: str, key: str, y: Array, tensor: TensorInfo, classes: int | None, ignored: int | None) -> None:
    shape, where = tensor.shape[1:], f"data {name}" if key == "y" else f"data {name}: {key}"
    labels = classes is not None and np.issubdtype(y.dtype, np.integer)
    if labels and tuple(shape) == (classes,):  # before the conversion to one-hot rows
        check_labels(where, y, classes or 0, OTHER_CLASSES)
    _check_fit(name, key, as_targets(y, shape, tensor.dtype, classes), shape, tensor.dtype, OTHER_TARGETS)
    if labels:
        check_labels(where, y, classes or 0, OTHER_CLASSES, () if ignored is None else (ignored,), tensor.dtype)


def _check_fit(name: str, key: str, array: Array, shape: Sequence[int], dtype: DTypeLike, advice: str) -> None:
    found, taken = list(array.shape[1:]), list(shape)
    if found != taken:
        raise DataError(
            f"data {name}: {key} has shape {found} per example, the model's train signature takes {taken}; {advice}"
        )
    if array.dtype != np.dtype(dtype):
        raise DataError(
            f"data {name}: {key} has dtype {array.dtype}, the model's train signature takes {np.dtype(dtype)}; {advice}"
        )


def check_transcripts(where: str, y: Array, frames: int, classes: int) -> None:
    """Check that a model with the given frames and classes can output the labels of all examples.

    Args:
        where: The name for errors.
        y: `[examples, labels]` numbers from 1, padded with zeros at the end.
        frames: The number of frames of the model's output.
        classes: The number of its classes, the blank included.

    Raises:
        DataError: A label is out of range, a 0 is before a label, or an example needs more frames.
    """
    if y.ndim != 2:
        return  # the check of shapes reports it
    if (wrong := (y < 0) | (y >= classes)).any():
        example, position = np.argwhere(wrong)[0]
        raise DataError(
            f"{where}: example {example} has the label {y[example, position]}; with the loss ctc the model takes the "
            f"labels 1..{classes - 1}, followed by zeros: pad with 0, or renumber the labels"
        )
    if (gap := (y[:, :-1] == 0) & (y[:, 1:] != 0)).any():
        raise DataError(
            f"{where}: example {int(np.argwhere(gap)[0][0])} has a 0 before a label; with the loss ctc 0 is the "
            "blank, which may only follow the labels: number the labels from 1"
        )
    needed = np.count_nonzero(y, axis=1) + np.count_nonzero((y[:, 1:] == y[:, :-1]) & (y[:, 1:] != 0), axis=1)
    if (needed > frames).any():
        example = int(needed.argmax())
        raise DataError(
            f"{where}: example {example} needs {needed[example]} frames, one per label and one between equal labels, "
            f"but the model's output has {frames}; leave out such examples, or choose a model with more frames"
        )
