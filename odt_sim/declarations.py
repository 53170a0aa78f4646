"""Declarations of settings: each is declared once, with its type, range, default and one line of documentation.

`Settings` checks values, and `declared` lists the settings for the command's help and the reference.
"""

from collections.abc import Mapping, Sequence
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
    **only: str,
) -> Any:
    """Return a dataclass field that declares a setting; its annotation is the type.

    Args:
        default: The default value.
        text: One line of documentation.
        least: The smallest value.
        above: The bound that values exceed.
        most: The largest value.
        below: The bound that values stay below.
        **only: Values of other settings of the group that read this one, such as `kind="synchronous, oort"`, which the
            documentation names; with other values, the setting must have its default.
    """
    prefix = "".join(
        f"{chooser}={values}: " if len(only) > 1 else f"{values}: " for chooser, values in [*only.items()][-1:]
    )
    readers = {chooser: values.split(", ") for chooser, values in only.items()}
    bounds = Range(least, above, most, below)
    return field(default=default, metadata={"text": prefix + text, "bounds": bounds, "readers": readers})


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
        direct = {key: hint for key, hint, _ in _declarations(cls)}  # type: ignore[arg-type]
        return {**direct, **{key: hint for kind in nested(cls).values() for key, hint in kind.hints().items()}}

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
        """Check types and ranges, and that settings which the value of another one does not read have their defaults.

        Raises:
            ConfigurationError: A value does not fit its declaration, or is not read.
        """
        for name, kind in nested(type(self)).items():
            object.__setattr__(self, name, kind.of(vars(self)[name]))
        check_values(type(self), vars(self))
        for key, _, found in _declarations(type(self)):  # type: ignore[arg-type]
            for chooser, readers in found.metadata["readers"].items():
                self._check_read(key, found, chooser, readers)

    def _check_read(self, key: str, found: Field[Any], chooser: str, readers: Sequence[str]) -> None:
        value, choice = (getattr(self, name) for name in (found.name, chooser))
        if choice in readers or value == found.default:
            return
        default, choice = ("null" if each is None else each for each in (found.default, choice))
        use = "use" if len(readers) > 1 else "uses"
        raise ConfigurationError(
            f"{key}: expected {default} with {self.group}.{chooser}={choice}, found {value}; only {' and '.join(readers)} "
            f"{use} it"
        )


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


def readers(kind: type[Settings], chooser: str) -> dict[str, Sequence[str]]:
    """Return the values of a setting that read another one, by the name of the other; all values read the rest."""
    choosers = {entry.name: entry.metadata["readers"] for _, _, entry in _declarations(kind)}  # type: ignore[arg-type]
    return {name: readers[chooser] for name, readers in choosers.items() if chooser in readers}


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
