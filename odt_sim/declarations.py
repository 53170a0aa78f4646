"""Declarations of settings: each is declared once, with its type, range, default and one line of documentation.

`Settings` checks values, and `declared` lists the settings for the command's help and the reference.
"""

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields
from functools import cache
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from odt_sim.errors import ConfigurationError

NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    type(None): "null",
}
CONTAINERS: dict[Any, Any] = {PathLike: PathLike, list: list, Sequence: list, tuple: list, dict: dict, Mapping: dict}
REQUIRED = "???"  # Hydra's mark for a required value


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
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def fits(value: Any, hint: Any, bounds: Range | None = None) -> bool:
    """Return whether a value has a type and is within bounds; integers are numbers, booleans are not."""
    return any(_is_a(value, kind, bounds or Range()) for kind in _alternatives(hint))


def mismatch(key: str, hint: Any, value: Any, bounds: Range | None = None) -> str:
    """Return the error message for a value that does not fit the type of a setting."""
    advice = braces_advice(key, value) if dict in _alternatives(hint) else ""
    return f"{key}: expected {expected(hint, bounds)}, found {value!r}{advice}"


def braces_advice(key: str, value: Any) -> str:
    """Return advice to quote a mapping that a shell expanded, such as `{0:1,1:8}` to `1:8`; empty for other values."""
    left = isinstance(value, str) and re.fullmatch(r"\w+:\S+", value)
    return f"; a shell expands braces, so quote the mapping: '{key}={{...,{value}}}'" if left else ""


def _alternatives(hint: Any) -> tuple[Any, ...]:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(CONTAINERS.get(get_origin(kind) or kind, kind) for kind in kinds)


def _is_a(value: Any, kind: Any, bounds: Range) -> bool:
    if get_origin(kind) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(kind))
    if kind in (int, float):
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, bool) and bounds.holds(value)
    return kind not in (*NAMES, PathLike) or isinstance(value, kind)


def setting(
    default: Any,
    text: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> Any:
    """Return a dataclass field that declares a setting; its annotation is the type.

    Args:
        default: The default value.
        text: One line of documentation.
        least: The smallest value.
        above: The bound that values exceed.
        most: The largest value.
        below: The bound that values stay below.
    """
    return field(default=default, metadata={"text": text, "bounds": Range(least, above, most, below)})


class Setting(NamedTuple):
    """A declared setting, as the help and the reference show it."""

    key: str
    kind: str
    default: Any
    text: str


class Settings:
    """A group of settings that are checked when an instance is created."""

    group: ClassVar[str]

    def __init_subclass__(cls, group: str) -> None:
        """Name the group and document the fields as attributes."""
        cls.group = group
        lines = [
            f"    {name}: {value.metadata['text']}" for name, value in vars(cls).items() if isinstance(value, Field)
        ]
        cls.__doc__ = "\n".join([f"{cls.__doc__}\n\nAttributes:", *lines])

    @classmethod
    def hints(cls) -> dict[str, Any]:
        """Return the settings' types by key, such as `fleet.cohort`, including those of nested groups."""
        own = {key: hint for key, hint, _ in _declarations(cls)}  # type: ignore[arg-type]
        return {**own, **{key: hint for kind in nested(cls).values() for key, hint in kind.hints().items()}}

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the settings of a nested group, given an instance, a mapping, or the value of the first setting.

        Raises:
            ConfigurationError: A key is unknown, or a value does not fit its declaration.
        """
        if isinstance(value, cls):
            return value
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        values = dict(value) if isinstance(value, Mapping) else {names[0]: value}
        if unknown := sorted(str(key) for key in values if key not in names):
            raise ConfigurationError(f"{cls.group}.{unknown[0]}: unknown setting; expected one of {', '.join(names)}")
        return cls(**values)

    def __post_init__(self) -> None:
        """Check types and ranges.

        Raises:
            ConfigurationError: A value does not fit its declaration.
        """
        for name, kind in nested(type(self)).items():
            object.__setattr__(self, name, kind.of(vars(self)[name]))
        check_values(type(self), vars(self))


def flatten(nested: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Return nested values by their joined keys: `{"run": {"rounds": 3}}` becomes `{"run.rounds": 3}`."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        inner = flatten(value, separator) if isinstance(value, Mapping) else None
        flat |= {key: value} if inner is None else {f"{key}{separator}{name}": item for name, item in inner.items()}
    return flat


def choices(hint: Any) -> list[str]:
    """Return the values of a type with few values, as overrides write them; empty for other types."""
    written: list[str] = []
    for kind in _alternatives(hint):
        if get_origin(kind) is Literal:
            written += map(str, get_args(kind))
        elif kind in (bool, type(None)):
            written += ["true", "false"] if kind is bool else ["null"]
        else:
            return []
    return written


@cache
def _declarations(kind: type[Settings]) -> list[tuple[str, Any, Field[Any]]]:
    hints, prefix = get_type_hints(kind), f"{kind.group}." if kind.group else ""
    return [(f"{prefix}{found.name}", hints[found.name], found) for found in fields(kind)]  # type: ignore[arg-type]


def nested(kind: type[Settings]) -> dict[str, type[Settings]]:
    """Return the nested groups of a group of settings, by field name."""
    return {
        found.name: hint
        for _, hint, found in _declarations(kind)  # type: ignore[arg-type]
        if isinstance(hint, type) and issubclass(hint, Settings)
    }


def check_values(kind: type[Settings], values: Mapping[str, Any]) -> None:
    """Check the types and ranges of some settings of a class, given by field name.

    Raises:
        ConfigurationError: A value does not fit its declaration.
    """
    for key, hint, found in _declarations(kind):  # type: ignore[arg-type]
        bounds = found.metadata["bounds"]
        if found.name in values and not fits(values[found.name], hint, bounds):
            raise ConfigurationError(mismatch(key, hint, values[found.name], bounds))


def declared(kind: type[Settings]) -> list[Setting]:
    """Return the settings that a class declares; a nested group is replaced by its settings."""
    inner, listed = nested(kind), list[Setting]()
    for key, hint, found in _declarations(kind):  # type: ignore[arg-type]
        if found.name in inner:
            listed += declared(inner[found.name])
        else:
            text, bounds = found.metadata["text"], found.metadata["bounds"]
            listed.append(Setting(key, expected(hint, bounds), found.default, text))
    return listed
