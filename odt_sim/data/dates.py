"""Conversion of columns of dates to nanoseconds by pandas."""

import re
import warnings
from typing import Any

import numpy as np

from odt_sim.data.columns import Array

MONTHS = 12
_TWO_NUMBERS = re.compile(
    r"""\s*(?:[^\W\d]+[.,]*\s*)?  # a weekday
    (\d{1,2})(?:\s*[/.-]\s*|\s+)(\d{1,2})(?:\s*[/.-]\s*|\s+)\d{2,4}(?!\d)""",
    re.VERBOSE,
)
"""Dates that begin with day and month in either order, optionally after a weekday."""


def nanoseconds(column: Any, where: str, pandas: Any) -> Array:
    """Return dates as nanoseconds in UTC; of two leading numbers, the day is the one that exceeds 12 in some row.

    If no row decides, the month is first, with a warning. Dates with an offset from UTC, which may vary by daylight
    saving time, are converted by that offset.

    Args:
        column: A pandas `Series`.
        where: The name of the column for the warning, such as `data visits.csv: column 'when'`.
        pandas: The imported module.

    Raises:
        ValueError: A value is not a date, differs in format from the first one without being ISO 8601, or is outside
            the years 1678 to 2261.
        TypeError: A value is not a date.
    """
    try:
        dates = pandas.to_datetime(column, utc=True, format="ISO8601")  # also with different precisions
    except ValueError:
        dates = pandas.to_datetime(column, utc=True, dayfirst=_day_first(column, where))
    if (missing := dates.isna()).any():  # such as the text NaT
        raise ValueError(f"{column[missing].iloc[0]!r} is not a date")
    return np.asarray(pandas.DatetimeIndex(dates).as_unit("ns").asi8)


def _day_first(column: Any, where: str) -> bool:
    """Return whether dates that begin with day and month have the day first."""
    if column.dtype.kind == "M":  # the values are dates already
        return False
    found = {_two_numbers(value) for value in column.tolist()}
    pairs = {pair for pair in found if pair}
    if None in found or any(second > MONTHS for _, second in pairs):
        return False
    if any(first > MONTHS for first, _ in pairs):
        return True
    if any(first != second for first, second in pairs):
        warnings.warn(
            f"{where}: dates such as {next(iter(column))} are read as month first, since no number above 12 shows "
            "which is the day; write them as 2025-03-31",
            stacklevel=2,
        )
    return False


def _two_numbers(value: Any) -> tuple[int, int] | None:
    found = _TWO_NUMBERS.match(value) if isinstance(value, str) else None
    return (int(found[1]), int(found[2])) if found else None
