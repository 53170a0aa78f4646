"""User code and its errors: data functions, partitions, strategies, aggregators, observers."""

import functools
import inspect
import os
import reprlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from sysconfig import get_paths
from types import TracebackType
from typing import Any

from odt_sim._support.text import typed_line
from odt_sim.errors import ConfigurationError, OdtSimError

INSTALLED = (
    str(Path(__file__).parents[1]) + os.sep,
    *(path + os.sep for name, path in get_paths().items() if name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
"""The folders of code that is not the user's."""
PROMPTS = ("<ipython-input", "<python-input", "<stdin>")
"""The prefixes of the file names of code that is typed at a prompt."""


def name_of(owner: object, package: str | None) -> str:
    """Return the name of a strategy or similar object: its module's name if it is in `package`, else its class name."""
    module = type(owner).__module__
    return module.rpartition(".")[2] if module.startswith(f"{package}.") else type(owner).__name__


def repr_of(owner: object) -> str:
    """Return the class of a strategy or similar object with its settings, in one line."""
    settings = [f"{name}={reprlib.repr(value)}" for name, value in vars(owner).items() if not name.startswith("_")]
    return f"{type(owner).__name__}({', '.join(settings)})"


def imported(target: str, key: str) -> Any:
    """Return the function or class of a dotted name; it may be nested in a class.

    Args:
        target: Module and name, such as `mine.f1`.
        key: The setting with this name, for errors.

    Raises:
        ConfigurationError: The module cannot be imported, or has no such name.
    """
    owner, _, name = target.rpartition(".")
    if not owner:
        raise ConfigurationError(f"{key}: expected module.name, such as mine.{target}, found {target}")
    try:
        module = import_module(owner)
    except Exception as error:  # user code may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name == owner and "." in owner:
            module = imported(owner, key)  # a class
        else:
            missing = (isinstance(error, ModuleNotFoundError) and error.name) or owner
            is_missing = f"{owner}.".startswith(f"{missing}.")
            advice = (
                "check the name, the file, and PYTHONPATH"
                if is_missing
                else f"install {missing}, or add it to PYTHONPATH"
            )
            raise ConfigurationError(f"{key}: cannot import {owner} ({typed_line(error)}); {advice}") from error
    if not hasattr(module, name):
        raise ConfigurationError(f"{key}: {owner} has no {name!r}; check the name")
    return getattr(module, name)


def add_working_folder() -> None:
    """Add the working folder to the module search path."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


@contextmanager
def exits_are_errors() -> Iterator[None]:
    """Turn `sys.exit` in user code into an error; a launcher's exit passes.

    Raises:
        ConfigurationError: The block raised `SystemExit`.
    """
    try:
        yield
    except SystemExit as error:
        if _is_launchers(error):
            raise
        raise ConfigurationError(f"user code called sys.exit({error.code!r}); remove the call") from error


@contextmanager
def user_code_errors(
    owner: Any,
    subject: str,
    kind: type[OdtSimError],
    *,
    passes: type[OdtSimError] = OdtSimError,
    advice: str = "correct it",
) -> Iterator[None]:
    """Turn errors of user code in a block, including `SystemExit`, into one line with type, message, file and line.

    Args:
        owner: The user's function or object, whose file the message names.
        subject: The beginning of the message, such as `partition: failed`.
        kind: The type of the error to raise.
        passes: Errors that are raised unchanged.
        advice: The end of the message.

    Raises:
        OdtSimError: The block raised; the error is of `kind`.
    """
    try:
        yield
    except passes:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and _is_launchers(error):
            raise
        raised = kind(f"{subject} with {typed_line(error)}{_place(owner, error)}; {advice}")
        raised.in_user_code = True
        trace = error.__traceback__  # whose first frame is the one above
        raise raised from error.with_traceback(trace and trace.tb_next)


def _is_launchers(error: SystemExit) -> bool:
    """Return whether a signal handler of submitit ends the process, after it has requeued the job."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(frame.f_globals.get("__name__")).startswith("submitit.") for frame, _ in frames)


def _place(owner: Any, error: BaseException) -> str:
    """Return the innermost line of the owner's code that led to the error; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    for files in _files(owner):
        lines = [f" ({frame.filename}:{frame.lineno})" for frame in frames if frame.filename in files]
        if lines:
            return lines[-1]
    return ""


def user_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of odt_sim, Python's library and installed packages; None if no frame is left."""
    entry, kept = trace, list[TracebackType]()
    while entry:
        kept += [entry] if is_users(entry.tb_frame.f_code.co_filename) else []
        entry = entry.tb_next
    users: TracebackType | None = None
    for frame in reversed(kept):
        users = TracebackType(users, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return users


def is_users(file: str) -> bool:
    """Return whether a file's code is the user's; code that is generated or compiled has no path and is not."""
    return file.startswith(PROMPTS) or (os.path.isabs(file) and not file.startswith(INSTALLED))


def _files(owner: Any) -> Iterator[set[str]]:
    """Yield the files of a function, or of an object's class and then its base classes."""
    while isinstance(owner, functools.partial):
        owner = owner.func
    if code := getattr(inspect.unwrap(owner), "__code__", None):
        yield {code.co_filename}
        return
    for base in type(owner).__mro__:
        codes = (getattr(member, "__code__", None) for member in vars(base).values())
        yield {code.co_filename for code in codes if code}
