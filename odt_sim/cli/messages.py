"""Lines of a command on standard error."""

from rich.console import Console
from rich.markup import escape


def say(line: str) -> None:
    """Print a line of Rich's markup, which no terminal wraps."""
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)


def warn(message: str | None) -> None:
    """Print a warning, unless there is none."""
    if message:
        say(f"[yellow]warning[/yellow] {escape(message)}")
