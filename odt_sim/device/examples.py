"""A device's examples: rows of arrays that devices share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.data.checks.dataset_checks import label_advice
from odt_sim.data.checks.model_checks import as_targets, check_transcripts, counted_labels
from odt_sim.data.store.columns import Array, Columns, Rows, arrays_of, as_array, read_only, rows_at, rows_of, several
from odt_sim.errors import DataError
from odt_sim.model.contract.manifest import CTC, Output, task_of
from odt_sim.model.reading.flatbuffer import TensorInfo
from odt_sim.model.trainable import TrainableModel

ROUNDING = 1e-6
"""The amount by which a probability in float32 may exceed 1."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Selected rows of `x` and `y`; the arrays are read-only, because devices share them.

    Attributes:
        x: `[rows, ...]`, including rows of other devices; several inputs are columns.
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
        """Return `x` and `y` of the examples, read-only, in the given order of positions, by default unchanged."""
        rows = self.index if order is None else order if self.index is None else self.index[order]
        return (
            (self.x, self.y) if rows is None else (read_only(rows_at(self.x, rows)), read_only(rows_at(self.y, rows)))
        )

    def with_embeddings(self, embeddings: Array) -> "Examples":
        """Return the examples with embeddings `[examples, ...]`, in the same order, instead of `x`."""
        return Examples(embeddings, self.y if self.index is None else self.y[self.index])

    @classmethod
    def of_pair(cls, model: TrainableModel, examples: Any, what: str) -> "Examples":
        """Return checked examples as they are, or those of a pair `(x, y)`, see `checked`.

        Raises:
            DataError: It is neither, or the examples do not fit the model.
        """
        if isinstance(examples, Examples):
            return examples
        if not isinstance(examples, Sequence) or len(examples) != 2:
            count = f" of {len(examples)}" if isinstance(examples, Sequence) else ""
            raise DataError(
                f"{what}: expected the pair (x, y), found {type(examples).__name__}{count}; pass inputs and targets"
            )
        x, y = examples
        return cls.checked(model, x, y, what)

    @classmethod
    def checked(cls, model: TrainableModel, x: Any, y: Any, what: str) -> "Examples":
        """Check `x` and `y` against the model, and return all their rows.

        Args:
            model: The model.
            x: `[examples, ...]`, or a mapping or tuple of several inputs.
            y: `[examples, ...]`, or several targets, converted by `odt_sim.data.checks.model_checks.as_targets`.
            what: The name for errors, such as `device 3, train`.

        Raises:
            DataError: A shape, a dtype, the lengths or a value does not fit.
        """
        x = checked_inputs(x, model.inputs, f"{what}, x")
        check_ids(model, x, f"{what}, x")
        y = named_rows(y, tuple(model.targets), f"{what}, y")
        _check_no_one_hot(model, y, f"{what}, y")
        check_ranges(model, y, f"{what}, y")
        y = checked_inputs(targets_of(model, y), model.targets, f"{what}, y")
        if len(x) != len(y):
            raise DataError(f"{what}: x has {len(x)} examples but y has {len(y)}; give one y per x")
        return cls(x, y)


def check_ids(model: TrainableModel, x: Rows, what: str) -> None:
    """Check that ids that a model looks up in a table, such as words of a vocabulary, are in the table.

    Args:
        model: The model.
        x: Its inputs.
        what: The name for errors, such as `device 3, train, x`.

    Raises:
        DataError: An id is out of range.
    """
    for name, array in arrays_of(x).items():
        ids = model.vocabularies.get(name)
        if ids is None or not array.size:
            continue
        least, most = int(array.min()), int(array.max())
        if least < 0 or most >= ids:
            raise DataError(
                f"{_name(what, name)}: id {least if least < 0 else most} is out of range, {model.name} accepts ids "
                f"0..{ids - 1}; renumber the ids, or choose a model with a larger vocabulary"
            )


def _check_no_one_hot(model: TrainableModel, y: Rows, what: str) -> None:
    """Refuse one number per class, such as one-hot targets, where a model takes class numbers."""
    for name, array in arrays_of(y).items():
        target, classes = model.targets[name], model.classes_by_target.get(name)
        takes_labels = np.dtype(target.dtype).kind == "i" and array.ndim == len(target.shape) + 1
        if takes_labels and classes and array.shape[-1] == classes:
            raise DataError(
                f"{_name(what, name)}: expected class numbers, {target.dtype} {list(target.shape[1:])}, found one "
                f"number per class ({classes}), {array.dtype} {list(array.shape[1:])}; pass class numbers, such as "
                f"y.argmax(axis={array.ndim - 1})"
            )


def check_ranges(model: TrainableModel, y: Rows, what: str) -> None:
    """Check that a classifier's targets are its class numbers, including the ignored one, or probabilities in 0..1.

    Args:
        model: The model.
        y: The targets before their conversion; targets of other models, and those that are not numbers, have no range.
        what: The name for errors, such as `device 3, train, y`.

    Raises:
        DataError: A target is out of range.
    """
    outputs = {output.name: output for output in model.outputs}
    for name, array in arrays_of(y).items():
        output, classes = outputs.get(name), model.classes_by_target.get(name)
        loss = output.loss if output else None
        if not (classes and array.size and array.dtype.kind in "iuf"):
            continue
        if loss == CTC:
            check_transcripts(_name(what, name), array, model.answers[name].shape[1], classes)
        if task_of(loss) != "classification":
            if output:
                _check_chances(model, output, array, _name(what, name))
            continue
        is_label = loss == "sparse_categorical_crossentropy" or array.shape[1:] != model.targets[name].shape[1:]
        counted = counted_labels(array, model.ignored_classes[name])
        least, most = counted.min(initial=0), counted.max(initial=0)
        if least < 0 or most > (classes - 1 if is_label else 1) + ROUNDING:
            wrong, target = least if least < 0 else most, _name(what, name)
            raise DataError(
                f"{target}: label {wrong} is out of range, {model.name} has classes 0..{classes - 1}; "
                + label_advice(
                    array, model.targets[name].dtype, wrong, "renumber the labels or choose a model with more outputs"
                )
                if is_label or array.dtype.kind in "iu"
                else f"{target}: {wrong} is out of range, {loss} takes 0..1; renumber the labels or rescale the targets"
            )


def _check_chances(model: TrainableModel, output: Output, y: Array, what: str) -> None:
    """Refuse targets above 1 in the shape of a classifier's output, if evaluation lacks its loss; a hinge takes -1."""
    target, shape = model.targets[output.name], model.answers[output.name].shape[1:]
    of_output = np.dtype(target.dtype).kind == "f" and target.shape[1:] == shape == y.shape[1:]
    if of_output and y.max() > 1 + ROUNDING:
        raise DataError(
            f"{what}: {y.max()} is out of range, the task {output.task} takes 0..1; rescale the targets, or set another task"
        )


def targets_of(model: TrainableModel, y: Rows) -> Rows:
    """Convert targets to the form that a model takes, by `odt_sim.data.checks.model_checks.as_targets`."""
    converted = {}
    for name, array in arrays_of(y).items():
        target = model.targets[name]
        converted[name] = as_targets(array, target.shape[1:], target.dtype, model.classes_by_target[name])
    return rows_of(converted)


def named_rows(values: Any, names: tuple[str, ...], what: str) -> Rows:
    """Return values as rows with a model's names; for a single empty name, return the array or the only column.

    Raises:
        DataError: There is one array for several names, or the reverse, or a name differs.
    """
    if isinstance(values, Columns) or several(values) or (len(names) > 1 and isinstance(values, list)):
        columns = Columns.of(values, what)
        if names != ("",):
            return columns.named(names, what)
        if len(columns.names) == 1:
            return columns.arrays[0]
        raise DataError(f"{what}: expected a single array, found {len(columns.names)}: {columns.shapes}; pass one")
    if names != ("",):
        raise DataError(f"{what}: expected the arrays {', '.join(names)}, found a single array; pass a mapping by name")
    return as_array(values, what)


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
    """Return `values` as an array that fits the input `tensor`.

    Integers and floats are converted only to types of their own kind, and booleans only to integers.

    Raises:
        DataError: A row's shape or the dtype does not fit, or a value is too large, NaN or infinite.
    """
    array = as_array(values, what)
    try:
        array = _converted(array, np.dtype(tensor.dtype))
    except ValueError as error:
        raise DataError(f"{what}: {error}") from error
    if array.ndim != len(tensor.shape) or any(
        expected not in (-1, size) for expected, size in zip(tensor.shape[1:], array.shape[1:], strict=True)
    ):
        raise DataError(
            f"{what}: expected examples of shape {list(tensor.shape[1:])}, found {list(array.shape[1:])}; "
            "reshape them or choose another model"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise DataError(f"{what}: example {row} contains NaN or infinity; clean the data")
    return array


def _converted(array: Array, wanted: np.dtype[Any]) -> Array:
    if array.dtype == wanted:
        return array
    if array.dtype.kind == wanted.kind == "f":
        with np.errstate(over="ignore"):  # overflow becomes infinite and is refused later
            return array.astype(wanted)
    if array.dtype.kind == "b" and wanted.kind in "iu":  # a model's boolean inputs are integers in its file
        return array.astype(wanted)
    if array.dtype.kind not in "iu" or wanted.kind not in "iu":
        pixels = array.dtype == np.uint8 and wanted.kind == "f"
        advice = (
            "if these are pixels, scale them as a Dataset does: x.astype('float32') / 255" if pixels else "convert it"
        )
        raise ValueError(f"expected {wanted}, found {array.dtype}; {advice}")
    limits = np.iinfo(wanted)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise ValueError(f"expected {wanted}, found the integers {array.min()}..{array.max()}; renumber them")
    return array.astype(wanted)
