"""Errors that name an argument of the wrong type, instead of Python's errors from inside a call."""

import collections.abc
import inspect
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from odt_sim.declarations import fits
from odt_sim.errors import ConfigurationError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_WORDS: Mapping[Any, str] = {
    os.PathLike: "a path",
    str: "text",
    bytes: "bytes",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    types.NoneType: "None",
    collections.abc.Callable: "a function",
    collections.abc.Iterable: "a list",
    collections.abc.Sequence: "a list",
    list: "a list",
    collections.abc.Mapping: "a mapping",
}
"""The types of arguments in words; classes of odt_sim are called by their name."""

LONGEST = 100  # characters of the longest text that an error repeats


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
            for message in _mismatches(function, args, kwargs):
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
    return f"{_article(type(value).__name__)} {type(value).__name__}"


def _mismatches(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each argument of the wrong type; nothing if the arguments do not match the parameters at all."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return
    for name, value in given.items():
        kinds = _kinds(_hint(function, signature.parameters[name]))
        if not any(_is_a(value, kind) for kind in kinds):
            yield f"{function.__qualname__.removesuffix('.__init__')}: {name}: expected {_words(kinds)}, found {shown(value)}"


def _hint(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return a parameter's type; `Any` for classes imported only for type checkers, and for `*args` and `**kwargs`."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return Any
    holder = types.SimpleNamespace(__annotations__={"hint": parameter.annotation})
    try:
        return get_type_hints(holder, inspect.unwrap(function).__globals__)["hint"]
    except NameError:
        return Any


def _kinds(hint: Any) -> list[Any]:
    """Return the alternatives of an annotation; `os.PathLike` alone stands for a path as text or object."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [each if get_origin(each) is Literal else get_origin(each) or each for each in alternatives]
    return [kind for kind in kinds if kind is not str] if os.PathLike in kinds else kinds


def _is_a(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal or kind in (int, float):
        return fits(value, kind)
    if kind is os.PathLike:
        return isinstance(value, str | os.PathLike)
    if kind in (Iterable, Sequence, list):
        return isinstance(value, Iterable) and not isinstance(value, str | bytes)
    if not (kind in _WORDS or getattr(kind, "__module__", "").startswith("odt_sim.")):
        return True  # NumPy or another library checks it
    return isinstance(value, kind)


def _words(kinds: Sequence[Any]) -> str:
    texts = [text for kind in kinds for text in _texts(kind)]
    return " or ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _texts(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [*map(repr, get_args(kind))]
    if kind in _WORDS:
        return [_WORDS[kind]]
    name = str(kind.__name__)
    return [name if name.endswith("s") else f"{_article(name)} {name}"]


def _article(noun: str) -> str:
    return "an" if noun[0].lower() in "aeiou" else "a"
