"""Warnings about members of a user's class that nothing calls, since their names are misspelt or from another library."""

import warnings
from collections.abc import Collection, Mapping
from difflib import get_close_matches

ALIKE = 0.85  # similarity by `difflib`: an extra, missing or swapped letter in a name of five letters


def warn_of_misspelt(kind: type, base: type, elsewhere: Mapping[str, str], declared: Collection[str] = ()) -> None:
    """Warn about public members of a class whose names are nearly those of its base class, or from another library.

    Args:
        kind: A subclass.
        base: The class whose members may be overridden.
        elsewhere: The names of members of `base` by their names in another library.
        declared: Names that the class declares on purpose, such as hyper-parameters.
    """
    known = [name for name in dir(base) if not name.startswith("_")]
    for name in vars(kind):
        if name.startswith("_") or name in declared or any(name in vars(other) for other in kind.__mro__[1:]):
            continue
        near = [elsewhere[name]] if name in elsewhere else get_close_matches(name, known, 1, ALIKE)
        meant = [match for match in near if match not in vars(kind)]
        if meant:
            warnings.warn(
                f"{kind.__name__}.{name}: {base.__name__} has no {name}; rename it if you mean {meant[0]}",
                stacklevel=3,
            )
