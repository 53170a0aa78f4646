"""Columns of dates, which pandas converts to nanoseconds."""

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
"""Dates that begin with day and month, in either order, or with a weekday and these."""


def nanoseconds(column: Any, where: str, pandas: Any) -> Array:
    """Return dates as nanoseconds in UTC; of two leading numbers the day is the one that is above 12 in some row.

    If there is no such row, the month is first, with a warning. Dates with an offset from UTC, which summer time changes,
    are converted by it.

    Args:
        column: A pandas `Series`.
        where: Its name for the warning, such as `data visits.csv: column 'when'`.
        pandas: The module.

    Raises:
        ValueError: A value is no date, not of ISO 8601 and of another form than the first, or not in the years 1678 to 2261.
        TypeError: A value is no date.
    """
    try:
        dates = pandas.to_datetime(column, utc=True, format="ISO8601")  # also of different precision
    except ValueError:
        dates = pandas.to_datetime(column, utc=True, dayfirst=_day_first(column, where))
    if (missing := dates.isna()).any():  # such as NaT as text
        raise ValueError(f"{column[missing].iloc[0]!r} is no date")
    return np.asarray(pandas.DatetimeIndex(dates).as_unit("ns").asi8)


def _day_first(column: Any, where: str) -> bool:
    """Return whether dates that begin with day and month have the day first."""
    if column.dtype.kind == "M":  # they are dates already
        return False
    found = {_two_numbers(value) for value in column.tolist()}
    pairs = {pair for pair in found if pair}
    if None in found or any(second > MONTHS for _, second in pairs):
        return False
    if any(first > MONTHS for first, _ in pairs):
        return True
    if any(first != second for first, second in pairs):
        warnings.warn(
            f"{where}: dates such as {next(iter(column))} are read with the month first, since no number above 12 says which "
            "is the day; write them as 2025-03-31",
            stacklevel=2,
        )
    return False


def _two_numbers(value: Any) -> tuple[int, int] | None:
    found = _TWO_NUMBERS.match(value) if isinstance(value, str) else None
    return (int(found[1]), int(found[2])) if found else None
