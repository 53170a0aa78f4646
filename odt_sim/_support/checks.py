"""Checks of values against a declared type, range or set of names; errors say what, where, expected and found."""

import collections.abc
import types
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from os import PathLike
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from odt_sim.errors import ConfigurationError

NAMES: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    types.NoneType: "null",
}
"""The types of settings in words."""
CONTAINERS: Mapping[Any, Any] = {
    PathLike: PathLike,
    collections.abc.Callable: collections.abc.Callable,
    **dict.fromkeys((list, Sequence, Iterable, tuple), list),
    **dict.fromkeys((dict, Mapping), dict),
}
LONGEST = 100  # characters of the longest text that an error repeats
ALIKE = 0.85  # similarity by `difflib`: an extra, missing or swapped letter in a name of five letters


class Range(NamedTuple):
    """The range of a number; a bound of None does not apply."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def holds(self, value: Any) -> bool:
        """Return whether a number is finite and within the bounds."""
        return bool(
            float("-inf") < value < float("inf")
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """Return the bounds in words, such as `of at least 1`."""
        low = f"of at least {self.least:g}" if self.least is not None else ""
        low = f"above {self.above:g}" if self.above is not None else low
        high = f"at most {self.most:g}" if self.most is not None else ""
        high = f"below {self.below:g}" if self.below is not None else high
        return " and ".join(filter(None, (low, high)))


def expected(hint: Any, bounds: Range | None = None) -> str:
    """Return a type and its bounds in words, such as `a whole number of at least 1 or null`; omit unknown types."""
    words = []
    for kind in _alternatives(hint):
        if get_origin(kind) is Literal:
            words += [str(value) for value in get_args(kind)]
        elif kind in NAMES:
            words.append(f"{NAMES[kind]} {bounds}".rstrip() if bounds and kind in (int, float) else NAMES[kind])
    return _either(words)


def fits(value: Any, hint: Any, bounds: Range | None = None) -> bool:
    """Return whether a value has a type and is within bounds; integers are numbers, booleans are not."""
    return any(_is_a(value, kind, bounds or Range()) for kind in _alternatives(hint))


def check_value(key: str, hint: Any, value: Any, bounds: Range | None = None) -> None:
    """Check the type and the range of a setting.

    Args:
        key: The setting's key, such as `fleet.devices`.
        hint: The type.
        value: The value.
        bounds: The range of a number.

    Raises:
        ConfigurationError: The value does not fit.
    """
    if not fits(value, hint, bounds):
        raise ConfigurationError(f"{key}: expected {expected(hint, bounds)}, found {value!r}")


def check_instance(where: str, kind: type, value: Any, advice: str) -> None:
    """Check that a value is an instance of a class.

    Args:
        where: The name of the argument, such as `Simulation: plan`.
        kind: The class.
        value: The value.
        advice: What to do about another value.

    Raises:
        ConfigurationError: The value is a class, or an instance of another one.
    """
    if isinstance(value, type) or not isinstance(value, kind):
        raise ConfigurationError(f"{where}: expected {_with_article(kind.__name__)}, found {shown(value)}; {advice}")


def checked_count(name: str, value: int, low: int = 0, *, group: str = "strategy") -> int:
    """Return a hyper-parameter, checked to be a whole number of at least `low`.

    Raises:
        ConfigurationError: The value is not a whole number, or too small.
    """
    check_value(f"{group}.{name}", int, value, Range(least=low))
    return int(value)


def choices(hint: Any) -> list[str]:
    """Return the values of a type with few values, as overrides write them; empty for other types."""
    written: list[str] = []
    for kind in _alternatives(hint):
        if get_origin(kind) is Literal:
            written += map(str, get_args(kind))
        elif kind in (bool, types.NoneType):
            written += ["true", "false"] if kind is bool else ["null"]
        else:
            return []
    return written


def shown(value: Any) -> str:
    """Return an argument's text for an error: the `repr` of a short value, otherwise the type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str) and len(value) > LONGEST:
        return f"text of {len(value):,} characters"
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    return _with_article(type(value).__name__)


def warn_of_misspelt(kind: type, base: type, declared: Collection[str]) -> None:
    """Warn about public members of a class whose names are nearly those of its base class.

    Args:
        kind: A subclass.
        base: The class whose members may be overridden.
        declared: Names that the class declares on purpose, such as hyper-parameters.
    """
    members = [name for name in dir(base) if not name.startswith("_")]
    for name in vars(kind):
        if name.startswith("_") or name in declared or any(name in vars(other) for other in kind.__mro__[1:]):
            continue
        meant = [match for match in get_close_matches(name, members, 1, ALIKE) if match not in vars(kind)]
        if meant:
            warnings.warn(
                f"{kind.__name__}.{name}: {base.__name__} has no {name}; rename it if you mean {meant[0]}",
                stacklevel=3,
            )


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a type, with one type for all lists and one for all mappings."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(CONTAINERS.get(get_origin(kind) or kind, kind) for kind in kinds)


def _is_a(value: Any, kind: Any, bounds: Range) -> bool:
    if get_origin(kind) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(kind))
    if kind in (int, float):
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, bool) and bounds.holds(value)
    return kind not in (*NAMES, PathLike) or isinstance(value, kind)


def _with_article(noun: str) -> str:
    """Return a noun with its article; plurals have none."""
    article = "an" if noun[0].lower() in "aeiou" else "a"
    return noun if noun.endswith("s") else f"{article} {noun}"


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
