"""Passes over a device's examples, and the partial work of stragglers."""

from dataclasses import replace

import numpy as np
import pytest

from odt_sim import TrainingPlan


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(None, [20, 20, 20]), (0, []), (1, [16]), (2, [20]), (3, [20, 16]), (4, [20, 20])],
)
def test_passes_over_examples(steps: int | None, expected: list[int]) -> None:
    """Twenty examples are one step of 16 and one of 4."""
    assert list(TrainingPlan(epochs=3, steps=steps).passes(20, 16)) == expected


@pytest.mark.parametrize(("amount", "expected"), [(2, {1}), (5, {1, 2, 3, 4})])
def test_partial_work_is_uniform(amount: int, expected: set[int]) -> None:
    for plan in (TrainingPlan(amount, 0.5), TrainingPlan(7, 0.5, steps=amount)):
        random = np.random.default_rng(0)
        parts = [plan.part(random) for _ in range(40)]
        assert {part.amount for part in parts} == expected
        assert {replace(part, epochs=0, steps=None) for part in parts} == {TrainingPlan(0, 0.5)}
