"""Range checks of the hyper-parameters of strategies and aggregators."""

import math
from numbers import Integral, Real

from odt_sim.errors import ConfigurationError


def checked(
    name: str,
    value: float,
    low: float,
    high: float = math.inf,
    *,
    above: bool = False,
    below: bool = False,
    group: str = "strategy",
) -> float:
    """Return a hyper-parameter, checked to be a finite number within its range.

    Args:
        name: Key below the group.
        value: The number.
        low: Lower bound.
        high: Upper bound.
        above: Whether the lower bound is excluded.
        below: Whether the upper bound is excluded.
        group: Group of the configuration.

    Raises:
        ConfigurationError: The value is not a finite number, or out of range.
    """
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and low <= value <= high and not (above and value == low) and not (below and value == high)):
        least = f"above {low}" if above else f"at least {low}"
        most = f"below {high}" if below else f"at most {high}"
        expected = f"a number {least}" if high == math.inf else f"a number {least} and {most}"
        raise ConfigurationError(f"{group}.{name}: expected {expected}, found {value!r}")
    return value if isinstance(value, int | float) else float(value)  # numpy's number


def checked_count(name: str, value: int, low: int = 0, *, group: str = "strategy") -> int:
    """Return a hyper-parameter, checked to be a whole number of at least `low`.

    Raises:
        ConfigurationError: The value is not a whole number, or too small.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise ConfigurationError(f"{group}.{name}: expected a whole number of at least {low}, found {value!r}")
    return int(value)
