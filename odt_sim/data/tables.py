"""Tables with one row for each example: CSV and Parquet files."""

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from odt_sim.data.dataset import Array, Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.errors import ConfigurationError, DataError


def table(
    path: str | os.PathLike[str],
    target: str,
    users: str | None = None,
    features: list[str] | None = None,
    classes: int | None = None,
    times: str | None = None,
) -> Dataset:
    """Read a `.csv` or `.parquet` file; needs `pip install 'odt_sim[tables]'`.

    Args:
        path: The file.
        target: The column to predict: integers are class labels; texts and booleans become class labels in sorted order;
            floats are values to regress.
        users: The column of user ids; None for none.
        features: The numeric columns of inputs; all other numeric columns by default.
        classes: The number of classes; by default the largest label plus one.
        times: The column that says when each example arises, of numbers or dates; None for none.

    Returns:
        `x` `[rows, features]` float32.

    Raises:
        ConfigurationError: The features are not a list, or contain the target.
        DataError: pandas is missing, the file cannot be read, lacks a column or a value, or a feature is not numeric.
    """
    path = Path(path).expanduser()
    if isinstance(features, str):
        raise ConfigurationError(
            f"data.features: expected a list of columns, found {features!r}; write it as [{features}]"
        )
    if target in (features or []):
        raise ConfigurationError(
            f"data.features: contains the target {target!r}, which must not be an input; leave it out"
        )
    frame = _read(path)
    others = [name for name in (users, times) if name]
    named = [target, *others, *(features or [])]
    if missing := [name for name in named if name not in frame.columns]:
        raise DataError(f"data {path}: has no column {missing[0]!r}; there are: {', '.join(map(str, frame.columns))}")
    if features is None:
        features = [
            name for name in frame.columns if name not in (target, *others) and frame[name].dtype.kind in "iufb"
        ]
    if wrong := [name for name in features if frame[name].dtype.kind not in "iufb"] or ([] if features else ["any"]):
        raise DataError(f"data {path}: feature {wrong[0]!r} is not numeric; name others by data.features, or encode it")
    for name in named[: 1 + len(others)]:
        if frame[name].isna().any():
            raise DataError(f"data {path}: column {name!r} has rows without a value; fill or remove them")
    x = frame[features].to_numpy(np.float32)
    owners = None if users is None else _names(frame[users])
    return check(Dataset(path.stem, x, _targets(frame[target]), owners, classes, times=_times(path, frame, times)))


def _read(path: Path) -> Any:
    readers = {".csv": "read_csv", ".parquet": "read_parquet"}
    if path.suffix not in readers:
        raise DataError(f"data {path}: expected a file that ends in {' or '.join(readers)}")
    if not path.is_file():
        raise DataError(f"data {path}: no such file; give the path of a table")
    reader = getattr(_pandas(), readers[path.suffix])
    try:
        return reader(path)
    except (ValueError, OSError, ImportError) as error:
        raise DataError(f"data {path}: cannot be read ({' '.join(str(error).split())}); write it again") from error


def _pandas() -> ModuleType:
    try:
        return import_module("pandas")
    except ImportError as error:
        raise DataError(f"a table needs pandas ({error}); run: pip install 'odt_sim[tables]'") from error


def _targets(column: Any) -> Array:
    if column.dtype.kind in "iuf":
        return np.asarray(column.to_numpy())
    return np.unique(_names(column), return_inverse=True)[1]


def _times(path: Path, frame: Any, name: str | None) -> Array | None:
    """Return a column of numbers, or of dates in nanoseconds."""
    if name is None:
        return None
    column = frame[name]
    if column.dtype.kind in "iuf":
        return np.asarray(column.to_numpy())
    try:
        return np.asarray(_pandas().to_datetime(column).to_numpy("datetime64[ns]").astype(np.int64))
    except (ValueError, TypeError) as error:
        raise DataError(
            f"data {path}: column {name!r} holds neither numbers nor dates ({error}); choose another"
        ) from error


def _names(column: Any) -> Array:
    return np.asarray(column.to_numpy() if column.dtype.kind in "iu" else np.array(column.tolist(), np.str_))
