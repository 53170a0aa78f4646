from dataclasses import dataclass

import numpy as np
import pytest

from odt_sim.simulation.run.run_settings import attributes, text_of


@dataclass(frozen=True)
class Pair:
    one: float
    other: set[str]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.5, "0.5"),
        (np.float32(0.5), "0.5"),
        (np.int64(3), "3"),
        (None, "None"),
        ("head", "head"),
        ((1, [2.0, "a"]), "[1, [2.0, a]]"),
        ([{"norm", "body", "head"}, frozenset()], "[{body, head, norm}, {}]"),
        ({"a": {1, 2}}, "{a: {1, 2}}"),
        (Pair(1.0, {"b", "a"}), "{one: 1.0, other: {a, b}}"),
        (len, None),
        ([1, len], None),
        ({"a": len}, None),
    ],
)
def test_equal_values_have_equal_text_in_every_process(value, words):
    assert text_of(value) == words


def test_text_of_an_array_depends_on_its_content():
    ones, twos = np.ones(3), 2 * np.ones(3)
    assert text_of(ones) == text_of(ones.copy()) != text_of(twos)


def test_private_attribute_that_is_none_is_left_out():
    class Owner:
        def __init__(self):
            self.later, self._cache, self._mu, self.run = None, None, 0.1, len

    assert attributes(Owner()) == {"later": "None", "mu": "0.1"}
