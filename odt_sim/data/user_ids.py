"""User ids in the form of integers."""

import re
from collections.abc import Iterable

_INTEGER = re.compile(r"0|-?[1-9]\d*")  # as Python prints it


def written_as_integers(ids: Iterable[str]) -> bool:
    """Return whether all ids are plain integers, which sort by value; `007` is text, since it may not be user `7`."""
    return all(_INTEGER.fullmatch(each) for each in ids)
