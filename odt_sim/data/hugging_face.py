"""Data sets of the Hugging Face library `datasets`, as objects: the library itself is never imported here."""

from typing import Any

import numpy as np

from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.errors import DataError


def hugging_face(dataset: Any, x: str, y: str, users: str | None = None, classes: int | None = None) -> Dataset:
    """Takes columns of a `datasets.Dataset`, such as one split of what `datasets.load_dataset` returns.

    Args:
        dataset: The data set; all rows of the columns are read into memory.
        x: The column of inputs; images are decoded, and all rows are of one shape.
        y: The column of targets.
        users: The column that says whose example each row is; None where there is none.
        classes: The number of classes; None takes that of the column's `ClassLabel`, and else the largest label plus one.

    Raises:
        DataError: It is no such data set, lacks a column, or rows are of different shapes.
    """
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "with_format")):
        raise DataError(f"data: expected a datasets.Dataset, found a {type(dataset).__name__}; choose a split of it")
    name = getattr(dataset.info, "dataset_name", None) or "hugging_face"
    columns = [column for column in (x, y, users) if column is not None]
    if missing := [column for column in columns if column not in dataset.column_names]:
        raise DataError(f"data {name}: has no column {missing[0]!r}; there are: {', '.join(dataset.column_names)}")
    rows = dataset.select_columns(columns).with_format("numpy", dtype=None)[:]  # pixels stay uint8
    arrays = {column: np.asarray(rows[column]) for column in columns}
    if arrays[x].dtype == object:
        raise DataError(f"data {name}: rows of column {x!r} differ in shape or hold no numbers; resize or encode them")
    known = getattr(dataset.features[y], "num_classes", None) if classes is None else classes
    owners = None if users is None else arrays[users]
    return check(Dataset(name, arrays[x], arrays[y], _plain(owners), known))


def _plain(users: Any) -> Any:
    return users.astype(np.str_) if users is not None and users.dtype.kind not in "iuSU" else users
