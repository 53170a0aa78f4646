"""The command's standard output and error: nobody may read them any more, and a file that takes them may have no room."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from odt_sim.errors import FileError
from odt_sim.files import unwritable


class Output(io.TextIOWrapper):
    """A standard output which says why it cannot be written, as each file of ours does."""

    def write(self, text: str) -> int:
        """Writes text.

        Raises:
            BrokenPipeError: Nobody reads it any more.
            FileError: It cannot be written.
        """
        with _told():
            return super().write(text)

    def flush(self) -> None:
        """Writes what waits to be written; raises as `write` does."""
        with _told():
            super().flush()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(Path("standard output"), error) from error


def take_output() -> None:
    """Puts an `Output` in place of this process's standard output; it escapes letters that its encoding lacks."""
    before = sys.stdout
    assert isinstance(before, io.TextIOWrapper)
    sys.stdout = Output(
        before.buffer,
        encoding=before.encoding,
        errors="backslashreplace",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def say(text: object) -> None:
    """Prints a line to standard error, where that can be written."""
    with suppress(OSError):
        print(text, file=sys.stderr)


def finish() -> None:
    """Writes what waits for standard output and error, and drops what they do not take: no exit code tells of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, FileError):
            _drop(stream)


def _drop(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
