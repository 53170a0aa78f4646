"""A command's messages on standard error, and output where an encoding lacks some characters."""

import codecs
import sys
from io import TextIOWrapper

LOOKALIKES = {"\N{NO-BREAK SPACE}": " ", "−": "-", "–": "-", "±": "+-", "…": "..."}
"""Replacements for characters that reports print and an encoding such as ASCII may lack; others become question marks."""


def say(line: str) -> None:
    """Print a line of Rich markup without wrapping it."""
    from rich.console import Console

    Console(stderr=True).print(line, highlight=False, soft_wrap=True)


def warn(message: str | None) -> None:
    """Print a warning; do nothing for None or an empty message."""
    if message:
        from rich.markup import escape

        say(f"[yellow]warning[/yellow] {escape(message)}")


def never_fail() -> None:
    """Replace characters that the encoding of stdout or stderr lacks with lookalikes, to avoid an error after a run."""
    codecs.register_error("lookalikes", _lookalikes)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="lookalikes")


def _lookalikes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(LOOKALIKES.get(each, "?") for each in error.object[error.start : error.end]), error.end
