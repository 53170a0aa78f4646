"""The ranges of a training plan."""

from dataclasses import replace

import numpy as np
import pytest

from odt_sim import TrainingPlan
from odt_sim.errors import ConfigurationError


def test_defaults() -> None:
    assert TrainingPlan() == TrainingPlan(epochs=1, learning_rate=None, steps=None)
    assert TrainingPlan(epochs=0, learning_rate=1e-9).epochs == 0


@pytest.mark.parametrize("rate", [0.0, -0.1, float("nan"), float("inf")])
def test_learning_rate(rate: float) -> None:
    with pytest.raises(ConfigurationError, match=r"train\.learning_rate: expected a number above 0 or null, found"):
        TrainingPlan(learning_rate=rate)


def test_epochs() -> None:
    with pytest.raises(ConfigurationError, match=r"train\.epochs: expected a whole number of at least 0, found -1"):
        TrainingPlan(epochs=-1)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(None, [20, 20, 20]), (0, []), (1, [16]), (2, [20]), (3, [20, 16]), (4, [20, 20])],
)
def test_passes(steps: int | None, expected: list[int]) -> None:
    """Twenty examples are a step of 16 and a step of 4."""
    assert list(TrainingPlan(epochs=3, steps=steps).passes(20, 16)) == expected


def test_steps() -> None:
    with pytest.raises(
        ConfigurationError, match=r"train\.steps: expected a whole number of at least 0 or null, found -1"
    ):
        TrainingPlan(steps=-1)


@pytest.mark.parametrize(("amount", "expected"), [(2, {1}), (5, {1, 2, 3, 4})])
def test_a_part(amount: int, expected: set[int]) -> None:
    for plan in (TrainingPlan(amount, 0.5), TrainingPlan(7, 0.5, steps=amount)):
        random = np.random.default_rng(0)
        parts = [plan.part(random) for _ in range(40)]
        assert {part.amount for part in parts} == expected
        assert {replace(part, epochs=0, steps=None) for part in parts} == {TrainingPlan(0, 0.5)}
