"""Warnings about members of a user's class that nothing calls, because their names are misspelt."""

import warnings
from difflib import get_close_matches

ALIKE = 0.85  # similarity by `difflib`: an extra, missing or swapped letter in a name of five letters


def warn_of_misspelt(kind: type, base: type) -> None:
    """Warn about public members of a class whose names are nearly those of members of its base class.

    Args:
        kind: A subclass.
        base: The class whose members may be overridden.
    """
    known = [name for name in dir(base) if not name.startswith("_")]
    for name in vars(kind):
        if name.startswith("_") or any(name in vars(other) for other in kind.__mro__[1:]):
            continue
        meant = [match for match in get_close_matches(name, known, 1, ALIKE) if match not in vars(kind)]
        if meant:
            warnings.warn(
                f"{kind.__name__}.{name}: {base.__name__} has no {name}; rename it if you mean {meant[0]}",
                stacklevel=3,
            )
