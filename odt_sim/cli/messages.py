"""A command's messages on standard error, and output where an encoding lacks some characters."""

import sys
from io import TextIOWrapper


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
    """Print question marks for characters that the encoding of stdout or stderr lacks, to avoid an error after a run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
