"""Reasons of excluded devices and advice."""

import pytest

from odt_sim.simulation.exclusion import AWAY, advice, failures_after, quarantined


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("loss not finite", "train.learning_rate"),
        ("weight not finite or not above 0", "Update a finite weight above 0"),
        ("update too large", "fleet.largest_update"),
        ("timed out", "fleet.timeout"),
        ("failed in LiteRT: gather index out of range, not finite", "data"),
        ("worker died 5 times", "backend=serial"),
        ("worker died or hung 5 times", "fleet.timeout"),
    ],
)
def test_each_reason_has_an_advice(reason, word):
    assert word in advice({3: reason})


def test_advice_is_given_once_for_each_reason():
    said = advice({1: "timed out", 2: "loss not finite", 4: "timed out"})
    assert said == "give them more time (fleet.timeout); a smaller train.learning_rate may help"
    assert advice({}) == ""


def test_failures_count_in_a_row_and_absence_does_not_count():
    before = {1: 2, 3: 1, 5: 1}
    after = failures_after(before, [1], {3: f"{AWAY}: its page was closed", 5: "update not finite", 4: "timed out"})
    assert after == {3: 1, 4: 1, 5: 2}
    assert quarantined(after, 2) == {5}
    assert quarantined(after, None) == set()
