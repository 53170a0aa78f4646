"""Checks of values against a declared type, range or set of names; errors say what, where, expected and found."""

import collections.abc
import inspect
import math
import re
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from odt_sim.errors import ConfigurationError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

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
PYTHON_NAMES: Mapping[Any, str] = {
    **NAMES,
    bool: "True or False",
    types.NoneType: "None",
    PathLike: "a path",
    bytes: "bytes",
    collections.abc.Callable: "a function",
}
"""The types of arguments in words; classes of odt_sim are called by their name."""
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
        advice = braces_advice(key, value) if dict in _alternatives(hint) else ""
        raise ConfigurationError(f"{key}: expected {expected(hint, bounds)}, found {value!r}{advice}")


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
    least, most = (None if math.isinf(bound) else bound for bound in (low, high))
    bounds = Range(
        least=None if above else least,
        above=least if above else None,
        most=None if below else most,
        below=most if below else None,
    )
    check_value(f"{group}.{name}", float, value, bounds)
    return value if isinstance(value, int | float) else float(value)  # numpy's number


def checked_count(name: str, value: int, low: int = 0, *, group: str = "strategy") -> int:
    """Return a hyper-parameter, checked to be a whole number of at least `low`.

    Raises:
        ConfigurationError: The value is not a whole number, or too small.
    """
    check_value(f"{group}.{name}", int, value, Range(least=low))
    return int(value)


def braces_advice(key: str, value: Any) -> str:
    """Return advice to quote a mapping that a shell expanded, such as `{0:1,1:8}` to `1:8`; empty for other values."""
    left = isinstance(value, str) and re.fullmatch(r"\w+:\S+", value)
    return f"; a shell expands braces, so quote the mapping: '{key}={{...,{value}}}'" if left else ""


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


def names_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a public function so that a `TypeError` or `AttributeError` names the argument of the wrong type.

    A call that succeeds is not checked, so compatible arguments of other types are accepted. Functions that a round
    calls for each device are not decorated, because the extra call costs time.

    Raises:
        ConfigurationError: The call failed, and an argument does not have the type of its annotation.
    """

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            if message := _mismatch(function, args, kwargs):
                raise ConfigurationError(message) from error
            raise

    return call


def shown(value: Any) -> str:
    """Return an argument's text for an error: the `repr` of a short value, otherwise the type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str) and len(value) > LONGEST:
        return f"text of {len(value):,} characters"
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    return _with_article(type(value).__name__)


def warn_of_misspelt(kind: type, base: type, elsewhere: Mapping[str, str], declared: Collection[str] = ()) -> None:
    """Warn about public members of a class whose names are nearly those of its base class, or from another library.

    Args:
        kind: A subclass.
        base: The class whose members may be overridden.
        elsewhere: The names of members of `base` by their names in another library.
        declared: Names that the class declares on purpose, such as hyper-parameters.
    """
    members = [name for name in dir(base) if not name.startswith("_")]
    for name in vars(kind):
        if name.startswith("_") or name in declared or any(name in vars(other) for other in kind.__mro__[1:]):
            continue
        near = [elsewhere[name]] if name in elsewhere else get_close_matches(name, members, 1, ALIKE)
        meant = [match for match in near if match not in vars(kind)]
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


def _mismatch(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the error for the first argument of the wrong type; None if there is none, or if the arguments do not bind."""
    signature = inspect.signature(function)
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    for name, value in arguments.items():
        kinds = _alternatives(_hint(function, signature.parameters[name]))
        if not any(_is_argument(value, kind) for kind in kinds):
            where = function.__qualname__.removesuffix(".__init__")
            return f"{where}: {name}: expected {_argument_words(kinds)}, found {shown(value)}"
    return None


def _hint(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return a parameter's type; `Any` for classes imported only for type checkers, and for `*args` and `**kwargs`."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return Any
    holder = types.SimpleNamespace(__annotations__={"hint": parameter.annotation})
    try:
        return get_type_hints(holder, inspect.unwrap(function).__globals__)["hint"]
    except NameError:
        return Any


def _is_argument(value: Any, kind: Any) -> bool:
    if kind is list:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes)
    if kind in (bytes, Callable) or getattr(kind, "__module__", "").startswith("odt_sim."):
        return isinstance(value, kind)
    return _is_a(value, kind, Range())  # NumPy or another library checks other types


def _argument_words(kinds: Sequence[Any]) -> str:
    """Return types of arguments in words; a path as text or object is a path."""
    words = list[str]()
    for kind in kinds:
        if get_origin(kind) is Literal:
            words += map(repr, get_args(kind))
        elif kind is not str or PathLike not in kinds:
            words.append(PYTHON_NAMES[kind] if kind in PYTHON_NAMES else _with_article(kind.__name__))
    return _either(words)


def _with_article(noun: str) -> str:
    """Return a noun with its article; plurals have none."""
    article = "an" if noun[0].lower() in "aeiou" else "a"
    return noun if noun.endswith("s") else f"{article} {noun}"


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
