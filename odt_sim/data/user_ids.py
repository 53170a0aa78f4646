"""User ids that are written as integers are."""

import re
from collections.abc import Iterable

_INTEGER = re.compile(r"0|-?[1-9]\d*")  # as Python writes it


def written_as_integers(ids: Iterable[str]) -> bool:
    """Return whether all ids are plain integers, which sort by value; `007` may be another user than `7`, and is text."""
    return all(_INTEGER.fullmatch(each) for each in ids)
