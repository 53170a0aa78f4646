"""Columns of tables: their names in settings, and conversions of classes, user ids and dates."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from odt_sim.data.store.columns import Array
from odt_sim.errors import ConfigurationError, DataError

Named = str | Sequence[str] | Mapping[str, Any]
"""A column, the columns of one array, or a mapping from the names of several arrays to their columns."""


def columns_of(named: Named) -> list[str]:
    """Return all columns in a name, a list of names, or a mapping to names or lists."""
    if isinstance(named, Mapping):
        return [column for each in named.values() for column in columns_of(each)]
    return [named] if isinstance(named, str) else [*named]


def check_columns(
    where: str, known: Iterable[Any], target: Named, features: Named | None, others: Iterable[str | None] = ()
) -> None:
    """Check that a table has the given columns, and that they can be targets and inputs.

    Args:
        where: The name of the table for errors, such as `data ratings.csv`.
        known: All columns of the table.
        target: The columns of targets.
        features: The columns of inputs; None if they are not given.
        others: Further columns, such as that of user ids; None is skipped.

    Raises:
        ConfigurationError: A target or an input has no column, or the features contain the target.
        DataError: The table lacks a column.
    """
    for key, named, advice in (("target", target, "name one"), ("features", features, "null uses all numeric ones")):
        if named is None:
            continue
        arrays = [*named.values()] if isinstance(named, Mapping) else [named]
        if not arrays or not all(map(columns_of, arrays)):
            raise ConfigurationError(f"data.{key}: expected at least one column, found {named}; {advice}")
    inputs = columns_of(features or [])
    if both := [column for column in columns_of(target) if column in inputs]:
        raise ConfigurationError(
            f"data.features: contains the target {both[0]!r}, which cannot be an input; leave it out, or for an "
            "autoencoder load the table by a function: data=function"
        )
    check_known(where, [*columns_of(target), *filter(None, others), *inputs], known)


def check_known(where: str, columns: Iterable[str], known: Iterable[Any]) -> None:
    """Check that a table has the given columns.

    Raises:
        DataError: The table lacks one of them.
    """
    if missing := [column for column in columns if column not in known]:
        raise DataError(f"{where}: has no column {missing[0]!r}; found: {', '.join(map(str, known))}")


def numeric_columns(where: str, numeric: Mapping[Any, bool]) -> list[str]:
    """Return the columns that are inputs by default: the numeric ones, with a warning that lists the others.

    Args:
        where: The name of the table for errors.
        numeric: Whether each column is numeric, by name, without the columns of targets, users and times.

    Raises:
        DataError: No column is numeric.
    """
    inputs, texts = (
        [name for name in numeric if numeric[name]],
        ", ".join(str(name) for name in numeric if not numeric[name]),
    )
    if not inputs:
        others = f"found {texts}; encode them" if texts else "found no other columns; add some"
        raise DataError(f"{where}: expected numeric columns in addition to target, users and times, {others}")
    if texts:
        warnings.warn(
            f"{where}: left out non-numeric columns: {texts}; correct or encode them, or name the inputs with "
            "data.features",
            stacklevel=3,
        )
    return inputs


def numbered(names: Array, classes: Sequence[str] | None, where: str) -> tuple[Array, tuple[str, ...]]:
    """Return the number of each example's class `[examples]` int32, and the names of all classes.

    Args:
        names: `[examples]` strings, the class of each example.
        classes: All classes in the order of their numbers; None for the sorted names that occur.
        where: The name of the data for errors.

    Raises:
        DataError: A name is not among the classes.
    """
    present, codes = np.unique(names, return_inverse=True)
    order = {str(name): i for i, name in enumerate(present if classes is None else classes)}
    if unknown := [name for name in present.tolist() if name not in order]:
        raise DataError(
            f"{where}: found the class {unknown[0]!r}, expected one of {', '.join(order)}; append it to data.classes"
        )
    return np.array([order[name] for name in present.tolist()], np.int32)[codes], tuple(order)


_INTEGER = re.compile(r"0|-?[1-9]\d*")  # as Python prints it


def written_as_integers(ids: Iterable[str]) -> bool:
    """Return whether all ids are plain integers, which sort by value; `007` is text, since it may not be user `7`."""
    return all(_INTEGER.fullmatch(each) for each in ids)


def nanoseconds(column: Any, where: str, pandas: Any) -> Array:
    """Return dates as nanoseconds in UTC; of two leading numbers, the day is the one that exceeds 12 in some row.

    If no row decides, the month is first, with a warning. Dates with an offset from UTC, which may vary by daylight
    saving time, are converted by that offset.

    Args:
        column: A pandas `Series`.
        where: The name of the column for the warning, such as `data visits.csv: column 'when'`.
        pandas: The imported module.

    Raises:
        ValueError: A value is not a date, or differs in format from the others without being ISO 8601.
        TypeError: A value is not a date.
    """
    try:
        dates = pandas.to_datetime(column, utc=True, format="ISO8601")  # also with different precisions
    except ValueError:
        dates = _in_either_order(column, where, pandas)
    if (missing := dates.isna()).any():  # such as the text NaT
        raise ValueError(f"{column[missing].iloc[0]!r} is not a date")
    return np.asarray(pandas.DatetimeIndex(dates).as_unit("ns").asi8)


def _in_either_order(column: Any, where: str, pandas: Any) -> Any:
    """Return dates with the month or the day first, whichever fits all rows; with a warning if both do."""
    fitting: list[Any] = []
    for day_first in (False, True):
        with warnings.catch_warnings(record=True) as contradictions, suppress(ValueError):
            warnings.simplefilter("always")
            dates = pandas.to_datetime(column, utc=True, dayfirst=day_first)
            if not contradictions:  # of the first row, or a format that differs from row to row
                fitting.append(dates)
    if not fitting:
        raise ValueError(f"dates such as {column.iloc[0]!r} have no common format; write them as 2025-03-31")
    if not fitting[0].equals(fitting[-1]):
        warnings.warn(
            f"{where}: dates such as {column.iloc[0]} are read as month first, since no number above 12 shows which is the "
            "day; write them as 2025-03-31",
            stacklevel=2,
        )
    return fitting[0]
