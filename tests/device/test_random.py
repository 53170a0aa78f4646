"""Random generators equal those of numpy for the same integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.device.random import generator_for


@given(st.lists(st.integers(0, 2**80), min_size=1, max_size=5))
def test_integers_seed_like_numpy(parts: list[int]) -> None:
    assert generator_for(*parts).integers(2**62, size=3).tolist() == drawn(parts)


def test_text_seeds_as_a_number() -> None:
    assert generator_for(0, 3, 1, "batches", 2).integers(2**62, size=3).tolist() == drawn(
        [0, 3, 1, int.from_bytes(b"batches", "big"), 2]
    )


def drawn(parts: list[int]) -> list[int]:
    return np.random.default_rng(parts).integers(2**62, size=3).tolist()
