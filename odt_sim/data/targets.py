"""Targets in the form that a model takes them: the few conversions that cannot change what they mean."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from odt_sim.data.dataset import Array


def as_targets(y: Array, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Returns targets as a model's train signature takes them; what does not fit in another way comes back as it is.

    One value an example, `[rows]`, becomes `[rows, 1]` for a model that ends in one output; labels that are all 0 or 1, as
    integers or booleans, become floats for a model that takes floats, as binary cross-entropy does.

    Args:
        y: `[rows, ...]`.
        shape: The shape of one target, without the batch axis, that the model takes.
        dtype: Its dtype.
    """
    if y.ndim == 1 and tuple(shape) == (1,):
        y = y[:, np.newaxis]
    wanted = np.dtype(dtype)
    if wanted.kind == "f" and y.dtype.kind in "biu" and ((y == 0) | (y == 1)).all():
        y = y.astype(wanted)
    return y
