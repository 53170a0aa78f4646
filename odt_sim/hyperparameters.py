"""The check of the hyper-parameters of a strategy or an aggregator."""

import math

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
    """Returns a hyper-parameter that is a finite number of its range.

    Args:
        name: Its key below the group.
        value: The number.
        low: The least that it may be.
        high: The most that it may be.
        above: Whether it must be more than `low`.
        below: Whether it must be less than `high`.
        group: The group of the configuration.

    Raises:
        ConfigurationError: It is no finite number, or out of its range.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and low <= value <= high and not (above and value == low) and not (below and value == high)):
        least = f"above {low}" if above else f"at least {low}"
        most = f"below {high}" if below else f"at most {high}"
        expected = f"a number {least}" if high == math.inf else f"a number {least} and {most}"
        raise ConfigurationError(f"{group}.{name}: expected {expected}, found {value!r}")
    return value


def checked_count(name: str, value: int, low: int = 0, *, group: str = "strategy") -> int:
    """Returns a hyper-parameter of a group that is a whole number, at least `low`.

    Raises:
        ConfigurationError: It is no whole number, or too small.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigurationError(f"{group}.{name}: expected a whole number, at least {low}, found {value!r}")
    return value


def checked_flag(name: str, value: bool) -> bool:
    """Returns a hyper-parameter that is true or false.

    Raises:
        ConfigurationError: It is neither.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"strategy.{name}: expected true or false, found {value!r}")
    return value
