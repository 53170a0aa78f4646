"""Declarations of settings: each is declared once, with its type, range, default and one line of documentation.

`Settings` checks values, and `declared` lists the settings for the command's help and the reference.
"""

from collections.abc import Mapping
from dataclasses import Field, field, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

from odt_sim._support.checks import Range, check_value, expected
from odt_sim.errors import ConfigurationError

REQUIRED = "???"  # Hydra's mark for a required value


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
        if found.name in values:
            check_value(key, hint, values[found.name], bounds)


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
