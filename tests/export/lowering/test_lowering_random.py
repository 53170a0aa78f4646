"""Random numbers: the very ones that TensorFlow draws."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf


@pytest.mark.parametrize("seed", [(0, 0), (5, 7), (2**31 - 3, 12345), (-4, 9)])
def test_uniform_numbers_are_tensorflows_to_the_bit(seed: tuple[int, int], same: Any) -> None:
    def function(seed: Any) -> dict[str, Any]:
        shapes: list[tuple[int, ...]] = [(), (7,), (2, 3, 4)]
        return {str(shape): tf.random.stateless_uniform(shape, seed) for shape in shapes}

    same(function, atol=0, seed=np.array(seed, np.int32))
