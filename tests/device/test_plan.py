"""Passes over a device's examples, and the partial work of stragglers."""

from dataclasses import replace

import numpy as np
import pytest

from odt_sim import TrainableModel, TrainingPlan
from odt_sim.device.plan import learning_rate_of


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(None, [20, 20, 20]), (0, []), (1, [16]), (2, [20]), (3, [20, 16]), (4, [20, 20])],
)
def test_passes_over_examples(steps: int | None, expected: list[int]) -> None:
    """Twenty examples are one step of 16 and one of 4."""
    assert list(TrainingPlan(epochs=3, steps=steps).passes(20, 16)) == expected


def test_partial_pass_has_several_steps() -> None:
    """Forty examples are two steps of 16 and one of 8."""
    assert list(TrainingPlan(steps=5).passes(40, 16)) == [40, 32]


@pytest.mark.parametrize(("round", "expected"), [(0, 0.5), (1, 0.5), (2, 0.25), (4, 0.0625)])
def test_learning_rate_decays_from_the_first_round(softmax: TrainableModel, round: int, expected: float) -> None:
    plan = TrainingPlan(learning_rate=0.5, learning_rate_decay=0.5)
    assert learning_rate_of(softmax, plan, None, "device 0", lambda: 9.0, round) == expected
    assert learning_rate_of(softmax, plan, 0.125, "device 0", lambda: 9.0, round) == 0.125


@pytest.mark.parametrize(("amount", "expected"), [(2, {1}), (5, {1, 2, 3, 4})])
def test_partial_work_is_uniform(amount: int, expected: set[int]) -> None:
    for plan in (TrainingPlan(amount, 0.5), TrainingPlan(7, 0.5, steps=amount)):
        random = np.random.default_rng(0)
        parts = [plan.part(random) for _ in range(40)]
        assert {part.amount for part in parts} == expected
        assert {replace(part, epochs=0, steps=None) for part in parts} == {TrainingPlan(0, 0.5)}
