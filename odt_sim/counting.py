"""Counts in texts for users."""


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun, such as `1 device` and `2 devices`; `several` is the plural if not `one` plus s."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {several or one + 's'}"
