"""Hyper-parameters of strategies, aggregators and attacks: fields of their classes with a range and a search range.

```python
class FedProx(Strategy):
    mu: float = number(0.01, search="tag(log,interval(0.001,10))")
```
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, dataclass_transform

import numpy as np

from odt_sim._support.checks import Range, check_value


@dataclass(frozen=True)
class HyperParameter:
    """One setting of a strategy, an aggregator or an attack.

    Attributes:
        default: Its value if it is not given; a class attribute of a subclass replaces it.
        hint: Its type.
        bounds: The range of a number.
        search: The range in which `odt-sim tune` searches by default, in Hydra's syntax; None for no search.
        kw_only: Whether it must be passed by name.
    """

    default: Any
    hint: Any
    bounds: Range
    search: str | None
    kw_only: bool

    def checked(self, key: str, value: Any) -> Any:
        """Return a checked value as a value of Python.

        Raises:
            ConfigurationError: The value has another type, or is out of range.
        """
        check_value(key, self.hint, value, self.bounds)
        return value.item() if isinstance(value, np.generic) else value


def number(
    default: float,
    low: float = 0,
    high: float = math.inf,
    *,
    above: bool = False,
    below: bool = False,
    search: str | None = None,
    kw_only: bool = False,
) -> Any:
    """Declare a finite number; see `HyperParameter`.

    Args:
        default: Its default.
        low: Lower bound.
        high: Upper bound.
        above: Whether the lower bound is excluded.
        below: Whether the upper bound is excluded.
        search: The range to search, in Hydra's syntax.
        kw_only: Whether it must be passed by name.
    """
    bounds = {"above" if above else "least": low, "below" if below else "most": high}
    finite = {name: bound for name, bound in bounds.items() if math.isfinite(bound)}
    return HyperParameter(default, float, Range(**finite), search, kw_only)


def count(
    default: int | None, low: int = 0, *, optional: bool = False, search: str | None = None, kw_only: bool = False
) -> Any:
    """Declare a whole number of at least `low`, or None if it is optional; see `HyperParameter`."""
    return HyperParameter(default, int | None if optional else int, Range(least=low), search, kw_only)


def choice(default: Any, *others: Any, kw_only: bool = False) -> Any:
    """Declare a choice between values; see `HyperParameter`."""
    hint: Any = Literal[(default, *others)]
    return HyperParameter(default, hint, Range(), None, kw_only)


class _SignatureOfClass:
    """The signature of a class: its hyper-parameters, or that of an `__init__` of its own."""

    def __get__(self, instance: object, owner: "type[Configured]") -> inspect.Signature:
        if owner.__init__ is Configured.__init__:
            return _signature(owner)
        return inspect.Signature([*inspect.signature(owner.__init__).parameters.values()][1:])


def _signature(kind: "type[Configured]") -> inspect.Signature:
    """Return the hyper-parameters of a class as parameters."""
    bases = reversed(kind.__mro__)
    hints = {name: hint for base in bases for name, hint in inspect.get_annotations(base).items()}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=getattr(kind, name),
            annotation=hints.get(name, Any),
        )
        for name, field in kind.hyperparameters.items()
    ]
    return inspect.Signature(sorted(parameters, key=lambda parameter: parameter.kind))


@dataclass_transform(eq_default=False, field_specifiers=(number, count, choice))
class Configured:
    """Base of classes whose hyper-parameters are fields; it checks and sets them.

    Attributes:
        hyperparameters: The hyper-parameters by name, those of base classes first.
        unused: The names of the base classes' hyper-parameters that a class does not have.
    """

    _group: ClassVar[str]
    hyperparameters: ClassVar[Mapping[str, HyperParameter]] = {}
    unused: ClassVar[frozenset[str]] = frozenset()
    __signature__: ClassVar[_SignatureOfClass] = _SignatureOfClass()

    def __init_subclass__(cls, **options: Any) -> None:
        """Collect the hyper-parameters, and make their defaults class attributes."""
        super().__init_subclass__(**options)
        own = {name: field for name, field in vars(cls).items() if isinstance(field, HyperParameter)}
        for name, field in own.items():
            setattr(cls, name, field.default)
        fields = {**cls.hyperparameters, **own}
        cls.hyperparameters = {name: field for name, field in fields.items() if name not in cls.unused}

    def __init__(self, *values: Any, **named: Any) -> None:
        """Set the hyper-parameters; one that is not given has the class's default.

        Raises:
            ConfigurationError: A value is out of its range.
            TypeError: A hyper-parameter is unknown, or given twice.
        """
        try:
            given = _signature(type(self)).bind(*values, **named)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}() {error}") from None
        given.apply_defaults()
        for name, value in given.arguments.items():
            setattr(self, name, self.hyperparameters[name].checked(f"{self._group}.{name}", value))
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check what concerns several hyper-parameters."""
