"""The orders of devices' training examples, computed with numpy."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def orders(seed: int, device: int, round: int, examples: int, purpose: str = "batches") -> Iterator[NDArray[np.int64]]:
    """Yield the order of each epoch of a round."""
    random = np.random.default_rng([seed, device, round, int.from_bytes(purpose.encode(), "big"), 0])
    while True:
        yield random.permutation(examples)
