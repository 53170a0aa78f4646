"""Data sets of `tf.data`, as objects: TensorFlow itself is never imported here."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.errors import DataError

_INFINITE = -1  # tf.data.INFINITE_CARDINALITY


def tf_data(dataset: Any, x: str = "x", y: str = "y", users: str | None = None, classes: int | None = None) -> Dataset:
    """Takes a finite `tf.data.Dataset` of single examples: `(x, y)`, `(x, y, user)` or mappings.

    Args:
        dataset: The data set; all its elements are read into memory.
        x: The key of the input where elements are mappings.
        y: The key of the target.
        users: The key of whose example it is; None where there is none.
        classes: The number of classes; None takes the largest integer label plus one.

    Raises:
        DataError: It is no such data set, is infinite, lacks a key, or its elements differ in shape (are batched, maybe).
    """
    if not hasattr(dataset, "as_numpy_iterator"):
        raise DataError(f"data: expected a tf.data.Dataset, found a {type(dataset).__name__}")
    if int(dataset.cardinality()) == _INFINITE:
        raise DataError("data tf_data: is infinite; take a number of examples: dataset.take(1000)")
    keys = [key for key in (x, y, users) if key is not None]
    try:
        rows = [_row(element, keys) for element in dataset.as_numpy_iterator()]
        inputs, targets, *owners = (np.stack(column) for column in zip(*rows, strict=True))
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"data tf_data: elements are not alike, or no (x, y) ({type(error).__name__}: {error}); "
            "name their keys, or undo batches: dataset.unbatch()"
        ) from error
    names = owners[0] if owners else None
    if names is not None and names.dtype.kind not in "iu":
        names = np.char.decode(names.astype(np.bytes_), "utf-8")
    return check(Dataset("tf_data", inputs, targets, names, classes))


def _row(element: Any, keys: list[str]) -> tuple[Any, ...]:
    return tuple(element[key] for key in keys) if isinstance(element, Mapping) else tuple(element)
