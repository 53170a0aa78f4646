"""Units and digits that suit the size of a number, since a simulated run takes from seconds to weeks."""

from collections.abc import Iterable, Sequence

_UNITS = {"hours": {"hours": 1.0, "minutes": 60.0, "seconds": 3600.0}, "kJ": {"kJ": 1.0, "J": 1000.0}}
"""Units in which a value may be shown, from large to small, by the value's unit, with their conversion factors."""


def suited(value: float, unit: str) -> tuple[str, float]:
    """Return the largest unit in which a value is at least 1, or the smallest unit, and the factor for the conversion.

    Args:
        value: The value.
        unit: The unit of the value, `hours` or `kJ`.
    """
    units = _UNITS[unit].items()
    return next(((name, factor) for name, factor in units if value * factor >= 1), [*units][-1])


def readable(headings: Sequence[str], values: Sequence[Iterable[float]]) -> list[tuple[str, float]]:
    """Return headings with units that suit all values below them, and the factor for each heading's values.

    Args:
        headings: The headings; those with the word `hours` or `kJ` may change their unit.
        values: The values below each heading, in its unit.
    """
    largest: dict[str, float] = {}
    for heading, below in zip(headings, values, strict=True):
        unit = _unit(heading)
        largest[unit] = max([largest.get(unit, 0.0), *below])
    return [_renamed(heading, _unit(heading), largest) for heading in headings]


def significant(value: float) -> str:
    """Return a number with three significant digits, or more if it has more digits before the decimal point."""
    if abs(value) >= 999.5:  # three digits would be rounded to 1.00e+03
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.2e}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


def duration(seconds: float) -> str:
    """Return a duration for a sentence, such as `45 s` or `3 min`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _unit(heading: str) -> str:
    return next((unit for unit in _UNITS if unit in heading.split()), "")


def _renamed(heading: str, unit: str, largest: dict[str, float]) -> tuple[str, float]:
    if not unit:
        return heading, 1.0
    name, factor = suited(largest[unit], unit)
    return heading.replace(unit, name), factor
