"""What an object was made with, in words that are the same in every process."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from odt_sim.data.dataset import digest_of


def plain_attributes(owner: Any) -> dict[str, str]:
    """Returns an object's attributes that `in_words` can tell; `_mu` is told as `mu`.

    A private None is left out: it is often what is found out only later.
    """
    known = {name.strip("_"): value for name, value in vars(owner).items() if value is not None or name[0] != "_"}
    told = {name: in_words(known[name]) for name in sorted(known)}
    return {name: words for name, words in told.items() if words is not None}


def in_words(value: Any) -> str | None:
    """Returns a number, a text, an array, or a sequence, set, mapping or dataclass of them in words; None for all else."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return str(value)
    if isinstance(value, np.ndarray):
        return f"array {digest_of(value)}"
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        pairs = [(in_words(key), in_words(one)) for key, one in value.items()]
        if any(None in pair for pair in pairs):
            return None
        return f"{{{', '.join(f'{key}: {one}' for key, one in pairs)}}}"
    if not isinstance(value, Sequence | Set):
        return None
    parts = [words for one in value if (words := in_words(one)) is not None]
    if len(parts) < len(value):
        return None
    return f"{{{', '.join(sorted(parts))}}}" if isinstance(value, Set) else f"[{', '.join(parts)}]"
