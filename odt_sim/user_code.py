"""Errors in user code: data functions, partitions, strategies, aggregators, observers."""

import functools
import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odt_sim.errors import OdtSimError


@contextmanager
def user_code_errors(
    owner: Any,
    subject: str,
    kind: type[OdtSimError],
    *,
    passes: type[OdtSimError] = OdtSimError,
    advice: str = "correct it",
) -> Iterator[None]:
    """Turn what user code raises, `SystemExit` included, into one line with type, message, file and line.

    Args:
        owner: The function or object of the user, which names the file to look at.
        subject: How the message begins, such as `partition: failed`.
        kind: The error to raise.
        passes: Errors that are raised unchanged.
        advice: How the message ends.

    Raises:
        OdtSimError: The block raised; the error is of `kind`.
    """
    try:
        yield
    except passes:
        raise
    except (Exception, SystemExit) as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raised = kind(f"{subject} with {message}{_place(owner, error)}; {advice}")
        raised.in_user_code = True
        raise raised from error


def _place(owner: Any, error: BaseException) -> str:
    """Return the innermost line of the owner's own code that led to the error; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    for files in _files(owner):
        lines = [f" ({frame.filename}:{frame.lineno})" for frame in frames if frame.filename in files]
        if lines:
            return lines[-1]
    return ""


def _files(owner: Any) -> Iterator[set[str]]:
    """Yield the files of a function, or of an object's class and then of its base classes."""
    while isinstance(owner, functools.partial):
        owner = owner.func
    if code := getattr(inspect.unwrap(owner), "__code__", None):
        yield {code.co_filename}
        return
    for base in type(owner).__mro__:
        codes = (getattr(member, "__code__", None) for member in vars(base).values())
        yield {code.co_filename for code in codes if code}
