"""Reasons of excluded devices and advice."""

import numpy as np
import pytest

from odt_sim.simulation.run.exclusion import AWAY, advice, check_update, failures_after, quarantined
from odt_sim.strategies.base import Update


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


@pytest.mark.parametrize(
    ("change", "largest", "reason"),
    [
        ({}, 5.0, None),
        ({}, 4.99, "update too large"),
        ({}, None, None),
        ({"tensors": {"v": np.array([3, np.nan], np.float32)}}, None, "update not finite"),
        ({"losses": np.array([np.inf], np.float32)}, 5.0, "loss not finite"),
        ({"weight": 0.0}, 5.0, "weight not finite or not above 0"),
        ({"weight": np.inf}, 5.0, "weight not finite or not above 0"),
    ],
)
def test_update_outside_the_limits_is_excluded(change, largest, reason):
    """The norm of the update is 5."""
    given = {"tensors": {"v": np.array([3, 4], np.float32)}, "weight": 1.0, "losses": np.zeros(1, np.float32), **change}
    found = check_update(Update(**given), {}, largest)
    assert (found.reason if found else None) == reason
    assert found is None or found.bytes_up == 8


def test_state_that_is_not_finite_sends_nothing():
    update = Update({"v": np.ones(2, np.float32)}, 1.0, np.zeros(1, np.float32))
    found = check_update(update, {"own": np.array([np.nan])}, 5.0)
    assert (found.reason, found.bytes_up) == ("state not finite", 0)
