"""Conversion of Hugging Face `datasets` and `tf.data` objects, without importing either library."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from odt_sim._support.checks import names_arguments
from odt_sim.data.column_names import check_known
from odt_sim.data.columns import Columns, Rows, only, rows_of
from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.errors import DataError

_INFINITE = -1  # tf.data.INFINITE_CARDINALITY


@names_arguments
def hugging_face(dataset: Any, x: str, y: str, users: str | None = None, classes: int | None = None) -> Dataset:
    """Convert columns of a `datasets.Dataset`, such as one split of the result of `datasets.load_dataset`.

    Args:
        dataset: The data set; all rows of the columns are read into memory.
        x: The column of inputs, all of one shape; images are decoded.
        y: The column of targets.
        users: The column of user ids; None for none.
        classes: The number of classes; by default that of the column's `ClassLabel`, else the largest label plus one.

    Raises:
        DataError: The object is not such a data set or lacks a column, or its rows differ in shape.
    """
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "with_format")):
        raise DataError(
            f"data: expected a datasets.Dataset, found a {type(dataset).__name__}; choose one of its splits"
        )
    name = getattr(dataset.info, "dataset_name", None) or "hugging_face"
    columns = [column for column in (x, y, users) if column is not None]
    check_known(f"data {name}", columns, dataset.column_names)
    rows = dataset.select_columns(columns).with_format("numpy", dtype=None)[:]  # pixels stay uint8
    arrays = {column: np.asarray(rows[column]) for column in columns}
    if arrays[x].dtype == object:
        raise DataError(f"data {name}: rows of column {x!r} differ in shape or are not numeric; resize or encode them")
    if classes is None:
        classes = getattr(dataset.features[y], "num_classes", None)
    owners = None if users is None else arrays[users]
    if owners is not None and owners.dtype.kind not in "iuSU":
        owners = owners.astype(np.str_)
    return check(Dataset(name, arrays[x], arrays[y], owners, classes))


@names_arguments
def tf_data(dataset: Any, x: str = "x", y: str = "y", users: str | None = None, classes: int | None = None) -> Dataset:
    """Convert a finite `tf.data.Dataset` of single examples: `(x, y)`, `(x, y, user)` or mappings.

    Several inputs or targets are a mapping or a tuple instead of `x` or `y`, as in Keras.

    Args:
        dataset: The data set; all elements are read into memory.
        x: The key of the input in mappings.
        y: The key of the target.
        users: The key of the user id; None for none.
        classes: The number of classes; by default the largest integer label plus one.

    Raises:
        DataError: The object is not such a data set, is infinite or lacks a key, or its elements differ in shape.
    """
    if not hasattr(dataset, "as_numpy_iterator"):
        raise DataError(f"data: expected a tf.data.Dataset, found a {type(dataset).__name__}")
    if int(dataset.cardinality()) == _INFINITE:
        raise DataError("data tf_data: is infinite; limit it: dataset.take(1000)")
    keys = [key for key in (x, y, users) if key is not None]
    try:
        rows = [_row(element, keys) for element in dataset.as_numpy_iterator()]
        inputs, targets, *owners = (_stacked(column) for column in zip(*rows, strict=True))
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"data tf_data: expected elements (x, y) of one shape ({type(error).__name__}: {error}); "
            "name their keys, or remove batches: dataset.unbatch()"
        ) from error
    names = only(owners[0], "data tf_data: users", "give one") if owners else None
    if names is not None and names.dtype.kind not in "iu":
        names = np.char.decode(names.astype(np.bytes_), "utf-8")
    return check(Dataset("tf_data", inputs, targets, names, classes))


def _stacked(values: Sequence[Any]) -> Rows:
    """Return values stacked to one array, or to several if they are mappings or tuples."""
    first = values[0]
    if isinstance(first, tuple):
        return Columns.of(tuple(map(np.stack, zip(*values, strict=True))), "data tf_data")
    if isinstance(first, Mapping):
        return rows_of({name: np.stack([value[name] for value in values]) for name in first})
    return np.stack(values)


def _row(element: Any, keys: list[str]) -> tuple[Any, ...]:
    return tuple(element[key] for key in keys) if isinstance(element, Mapping) else tuple(element)
