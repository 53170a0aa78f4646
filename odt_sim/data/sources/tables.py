"""Tables with one row per example: CSV and Parquet files, and pandas frames."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from odt_sim._support.checks import shown
from odt_sim._support.system import package
from odt_sim._support.text import one_line
from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Array, Classes, Dataset
from odt_sim.data.sources.table_columns import (
    Named,
    check_columns,
    columns_of,
    nanoseconds,
    numbered,
    numeric_columns,
    written_as_integers,
)
from odt_sim.data.store.columns import Rows, only, rows_of
from odt_sim.errors import ConfigurationError, DataError


def table(
    path: str | os.PathLike[str],
    target: str | list[str] | Mapping[str, str | list[str]],
    users: str | None = None,
    features: list[str] | Mapping[str, str | list[str]] | None = None,
    classes: Classes | list[str] = None,
    times: str | None = None,
    standardize: bool = False,
) -> Dataset:
    """Read a `.csv` or `.parquet` file; needs `pip install 'odt_sim[tables]'`.

    Args:
        path: The file.
        target: The column to predict: integers are class labels; texts and booleans become class labels in the order
            of `classes`, by default sorted; floats are regression targets. A list of numeric columns is one target with
            several values; a mapping from names to columns or lists gives several targets.
        users: The column of user ids, which stay as written: `007` is another user than `7`. None for none.
        features: The numeric columns of inputs; by default all other named numeric columns, with a warning that lists
            the rest. A mapping by name gives several inputs, each from a list of columns, or from one column, which
            keeps its type, as ids for an Embedding require.
        classes: The number of classes, for several targets a mapping by name; by default the largest label plus one. For
            one target of texts also the list of all classes, in the order of their labels.
        times: The column with the time of each example, as numbers or dates; None for none. In 03/04/2025 the day is
            the number that exceeds 12 in other rows; if neither does, the month comes first, with a warning.
        standardize: Whether each device standardizes its inputs to mean 0 and standard deviation 1 over its own
            training examples.

    Returns:
        `x` `[rows, features]` float32; `[rows]` for an input of one column in a mapping.

    Raises:
        ConfigurationError: The features are not a list, are none, or contain the target.
        DataError: pandas is missing, the file cannot be read, lacks a column or a value, or a feature is not numeric.
    """
    path = Path(path).expanduser()
    dataset = data_frame(_read(path, users), target, users, features, classes, times, str(path))
    return replace(dataset, name=path.stem, standardize=standardize)


def data_frame(
    frame: Any,
    target: str | list[str] | Mapping[str, str | list[str]],
    users: str | None = None,
    features: list[str] | Mapping[str, str | list[str]] | None = None,
    classes: Classes | list[str] = None,
    times: str | None = None,
    name: str = "data_frame",
) -> Dataset:
    """Convert a pandas `DataFrame` with a row for each example, as `table` does.

    Args:
        frame: The frame; its index is not used.
        target: The column to predict, a list of columns, or a mapping by name; see `table`.
        users: The column of user ids; None for none.
        features: The numeric columns of inputs; all others by default. See `table`.
        classes: The number of classes, for several targets a mapping by name; by default the largest label plus one. For
            one target of texts also the list of all classes, in the order of their labels.
        times: The column with the time of each example, as numbers or dates; None for none.
        name: The name in messages and reports.

    Returns:
        `x` `[rows, features]` float32; `[rows]` for an input of one column in a mapping.

    Raises:
        ConfigurationError: The features are not a list, are none, or contain the target.
        DataError: It is no `DataFrame`, lacks a column or a value, or a feature is not numeric.
    """
    if isinstance(frame, type) or not (hasattr(frame, "columns") and hasattr(frame, "isna")):
        raise DataError(f"data {name}: expected a pandas DataFrame, found {shown(frame)}; convert it")
    if isinstance(features, str):
        raise ConfigurationError(
            f"data.features: expected a list of columns, found {features!r}; write it as [{features}]"
        )
    check_columns(f"data {name}", frame.columns, target, features, (users, times))
    targets, listed_features = columns_of(target), columns_of(features or [])
    others = [column for column in (users, times) if column]
    named = [*targets, *others, *listed_features]
    if twice := {*frame.columns[frame.columns.duplicated()]} & {*(named if listed_features else frame.columns)}:
        raise DataError(f"data {name}: has several columns named {min(map(str, twice))!r}; rename or drop all but one")
    if not len(frame):
        raise DataError(f"data {name}: expected at least one row, found none; write the table again")
    if features is None:
        left = [column for column in frame.columns if column not in (*targets, *others) and not _has_no_name(column)]
        features = numeric_columns(f"data {name}", {column: frame[column].dtype.kind in "iufb" for column in left})
        behind = dropwhile(_has_no_name, frame.columns)  # leading unnamed columns are an index
        if unnamed := [column for column in behind if _has_no_name(column) and column not in named]:
            warnings.warn(
                f"data {name}: left out columns without a name: {', '.join(unnamed)}; name them in the file, or name "
                "the inputs with data.features",
                stacklevel=2,
            )
    numeric = [*columns_of(features), *_listed(target)]
    if wrong := [column for column in numeric if frame[column].dtype.kind not in "iufb"]:
        raise DataError(
            f"data {name}: feature {wrong[0]!r} is not numeric; encode it, or name other inputs with data.features"
        )
    used = dict.fromkeys([*targets, *others, *columns_of(features)])
    if holes := [repr(column) for column in used if frame[column].isna().any()]:
        raise DataError(f"data {name}: rows have missing values in {', '.join(holes)}; fill or remove them")
    x = _rows(frame, features, lambda column: np.asarray(column.to_numpy()))
    y: Rows
    names: tuple[str, ...] = ()
    listed, count = (classes, None) if isinstance(classes, list) else (None, classes)
    if isinstance(target, str) and frame[target].dtype.kind not in "iuf":
        y, names = numbered(_names(frame[target]), listed, f"data {name}")
        count = len(names) if count is None else count
        names = names if count == len(names) else ()
    elif listed is not None:
        raise ConfigurationError(
            f"data.classes: expected a number, since names of classes need one target of texts, found {listed}"
        )
    else:
        y = _rows(frame, target, _targets)
    owners = None if users is None else _names(frame[users])
    return check(Dataset(name, x, y, owners, count, times=_times(name, frame, times), class_names=names))


def _listed(named: Named) -> list[str]:
    """Return the columns that are given in lists, and so are converted to float32 together."""
    if isinstance(named, Mapping):
        return [column for each in named.values() for column in _listed(each)]
    return [] if isinstance(named, str) else [*named]


def _rows(frame: Any, named: Named, converted: Callable[[Any], Array]) -> Rows:
    """Return the converted array of a column, the float32 array of a list of columns, or several from a mapping."""
    if isinstance(named, Mapping):
        return rows_of({name: only(_rows(frame, each, converted), name, "") for name, each in named.items()})
    return converted(frame[named]) if isinstance(named, str) else np.asarray(frame[[*named]].to_numpy(np.float32))


def _has_no_name(column: Any) -> bool:
    """Return whether a column has no name in its file, like the index that pandas writes to CSV files."""
    return str(column).startswith("Unnamed: ")


def _read(path: Path, users: str | None) -> Any:
    readers = {".csv": "read_csv", ".parquet": "read_parquet"}
    if path.is_dir():
        raise DataError(
            f"data {path}: expected one table, found a folder; join its files, with a column for the user: data.users=COLUMN"
        )
    if path.suffix not in readers:
        raise DataError(f"data {path}: expected a file that ends in {' or '.join(readers)}")
    if not path.is_file():
        raise DataError(f"data {path}: no such file; give the path of a table")
    reader = getattr(_pandas(), readers[path.suffix])
    texts = {"dtype": {users: str}} if users and path.suffix == ".csv" else {}
    try:
        frame = reader(path, **texts)
    except UnicodeDecodeError as error:
        raise DataError(f"data {path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except (ValueError, OSError, ImportError) as error:
        raise DataError(f"data {path}: cannot be read ({one_line(error)}); write it again") from error
    if texts and users in frame.columns:
        numbers = _pandas().to_numeric(frame[users], errors="coerce")
        if numbers.dtype.kind in "iu" and written_as_integers(frame[users].str.strip().unique()):
            frame[users] = numbers  # which sort by value
    return frame


def _pandas() -> ModuleType:
    return package("pandas", "a table needs pandas", "tables", DataError)


def _targets(column: Any) -> Array:
    if column.dtype.kind in "iuf":
        return np.asarray(column.to_numpy())
    return np.unique(_names(column), return_inverse=True)[1]


def _times(name: str, frame: Any, times: str | None) -> Array | None:
    """Return a column of numbers, or of dates converted to nanoseconds."""
    if times is None:
        return None
    column = frame[times]
    if column.dtype.kind in "iuf":
        return np.asarray(column.to_numpy())
    try:
        return nanoseconds(column, f"data {name}: column {times!r}", _pandas())
    except (ValueError, TypeError) as error:
        reason = str(error).partition(". You might want to try:")[0]  # pandas appends advice about its own options
        raise DataError(
            f"data {name}: column {times!r} contains neither numbers nor dates ({reason}); choose another column"
        ) from error


def _names(column: Any) -> Array:
    return np.asarray(column.to_numpy() if column.dtype.kind in "iu" else np.array(column.tolist(), np.str_))
