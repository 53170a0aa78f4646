"""Counts and lists in texts for users."""

from collections.abc import Sequence


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun, such as `1 device` and `2 devices`; `several` is the plural if not `one` plus s."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {several or one + 's'}"


def few(items: Sequence[object], most: int = 3) -> str:
    """Return the first `most` items of a list, and how many more there are, such as `a, b, c and 2 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more
