"""A command's messages on standard error."""


def say(line: str) -> None:
    """Print a line of Rich markup without wrapping it."""
    from rich.console import Console

    Console(stderr=True).print(line, highlight=False, soft_wrap=True)


def warn(message: str | None) -> None:
    """Print a warning; do nothing for None or an empty message."""
    if message:
        from rich.markup import escape

        say(f"[yellow]warning[/yellow] {escape(message)}")
