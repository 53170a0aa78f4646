"""Counts, lists and errors in texts for users."""

from collections.abc import Sequence


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun, such as `1 device` and `2 devices`; `several` is the plural if not `one` plus s."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {several or one + 's'}"


def few(items: Sequence[object], most: int = 3) -> str:
    """Return the first `most` items of a list, and how many more there are, such as `a, b, c and 2 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more


def one_line(text: object) -> str:
    """Return the text of an error with single spaces instead of line breaks."""
    return " ".join(str(text).split())


def typed_line(error: BaseException) -> str:
    """Return an error's type and text in one line."""
    return one_line(f"{type(error).__name__}: {error}")


def first_line(error: BaseException) -> str:
    """Return the first line of the text of an error of native code or Ray, without a final period."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
