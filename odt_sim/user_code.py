"""A data function or a partition is often a user's own code: what it raises becomes one line that says where to look."""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from odt_sim.errors import OdtSimError


@contextmanager
def blamed(function: Callable[..., Any], what: str, kind: type[OdtSimError]) -> Iterator[None]:
    """Turns whatever the block raises, but for odt_sim's own errors, into one that names the function's file and line.

    Args:
        function: Whose code the block runs.
        what: What the message begins with.
        kind: The error to raise.

    Raises:
        OdtSimError: Of that kind; the block raised something.
    """
    try:
        yield
    except OdtSimError:
        raise
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise kind(f"{what}: failed with {message}{_place(function, error)}; correct it") from error


def _place(function: Callable[..., Any], error: Exception) -> str:
    """Returns the innermost line of the function's own file that led to the error; nothing where there is none."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if code and frame.filename == code.co_filename
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
