"""Metrics of outputs at the borders of their definitions: ties, zeros, and the bend of Huber's loss."""

import numpy as np
import pytest

from odt_sim.metrics.answers import Classes, Values
from odt_sim.metrics.losses import example_losses


def test_label_that_ties_with_the_first_classes_is_among_them() -> None:
    scores = np.array([[0.5, 0.5, 0.1], [0.1, 0.2, 0.7]])
    answers = Classes(scores, np.array([1, 0]), from_logits=False)
    assert [answers.top(k) for k in (1, 2, 3)] == [0.5, 0.5, 1.0]


def test_probability_of_one_half_is_not_confident() -> None:
    answers = Classes(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1]), from_logits=False)
    assert (answers.precision(), answers.recall()) == (1.0, 0.5)


def test_percentage_error_of_a_zero_target_is_finite() -> None:
    assert Values(np.array([[1.0]]), np.array([[0.0]])).mape() == pytest.approx(1e9)


def test_huber_loss_is_quadratic_up_to_delta_and_then_linear() -> None:
    outputs = np.array([[0.5], [1.0], [3.0]], np.float32)
    losses = example_losses(outputs, np.zeros((3, 1), np.float32), "huber", False, delta=1.0)
    assert losses.tolist() == [0.125, 0.5, 2.5]


def test_divergence_from_a_probability_of_zero_is_finite() -> None:
    [loss] = example_losses(np.array([[0.0, 1.0]], np.float32), np.array([[0.5, 0.5]]), "kl_divergence", False)
    assert loss == pytest.approx(0.5 * np.log(0.5 / 1e-7) + 0.5 * np.log(0.5))
