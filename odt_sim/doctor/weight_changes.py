"""The weights that steps change; part of the experiments in a subprocess."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from odt_sim.data.columns import Array


def weight_changes(read: Callable[[], Mapping[str, Array]], steps: Iterable[Any]) -> dict[str, Any]:
    """Return the names of weights that never change, and of weights that become NaN or infinite.

    Args:
        read: Returns the weights.
        steps: An iterator that takes a step for each item.
    """
    before = {name: np.array(value) for name, value in read().items()}
    after: Mapping[str, Array] = before
    changed = set[str]()
    for _ in steps:
        after = read()
        changed |= {name for name, value in after.items() if value.tobytes() != before[name].tobytes()}
    broken = [name for name, value in after.items() if np.isfinite(before[name]).all() and not np.isfinite(value).all()]
    return {
        "weights": len(before),
        "unchanged": [name for name in before if name not in changed],
        "not_finite": broken,
    }
