"""Numbers of classes that have names."""

from collections.abc import Sequence

import numpy as np

from odt_sim.data.columns import Array
from odt_sim.errors import DataError


def numbered(names: Array, classes: Sequence[str] | None, where: str) -> tuple[Array, tuple[str, ...]]:
    """Return the number of each example's class `[examples]` int32, and the names of all classes.

    Args:
        names: `[examples]` strings, the class of each example.
        classes: All classes in the order of their numbers; None for the sorted names that occur.
        where: The name of the data for errors.

    Raises:
        DataError: A name is not among the classes.
    """
    found, codes = np.unique(names, return_inverse=True)
    order = {str(name): i for i, name in enumerate(found if classes is None else classes)}
    if unknown := [name for name in found.tolist() if name not in order]:
        raise DataError(
            f"{where}: found the class {unknown[0]!r}, expected one of {', '.join(order)}; append it to data.classes"
        )
    return np.array([order[name] for name in found.tolist()], np.int32)[codes], tuple(order)
