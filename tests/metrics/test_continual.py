"""Metrics of continual learning: known answers."""

import numpy as np
import pytest

from odt_sim.metrics.rounds import by_period, continual_figures

ROUNDS = [
    {"round": 1},
    {"round": 2, "period_1_accuracy": 0.9},
    {"round": 3, "period_1_accuracy": 0.5, "period_2_accuracy": 0.4},
    {"round": 4, "period_1_accuracy": 0.6, "period_2_accuracy": 0.8},
    {"round": 5, "period_1_accuracy": 0.3, "period_2_accuracy": 0.7, "period_3_accuracy": 1.0},
]


def test_table_has_the_last_evaluation_of_each_period():
    nan = np.nan
    expected = [[0.9, nan, nan], [0.6, 0.8, nan], [0.3, 0.7, 1.0]]
    np.testing.assert_array_equal(by_period(ROUNDS, "accuracy"), expected)


def test_figures_equal_their_formulas():
    figures = continual_figures(ROUNDS, "accuracy")
    assert figures == {
        "now": 1.0,
        "average": pytest.approx((0.3 + 0.7 + 1.0) / 3),
        "plasticity": pytest.approx((0.9 + 0.8 + 1.0) / 3),
        "forgetting": pytest.approx(((0.9 - 0.3) + (0.8 - 0.7)) / 2),
    }


def test_an_error_that_grows_is_forgetting():
    rounds = [{"period_1_mse": 1.0}, {"period_1_mse": 3.0, "period_2_mse": 2.0}]
    assert continual_figures(rounds, "mse")["forgetting"] == 2.0


def test_one_period_forgets_nothing_and_others_have_no_figures():
    assert "forgetting" not in continual_figures(ROUNDS[:2], "accuracy")
    assert continual_figures([{"accuracy": 1.0}], "accuracy") is None


def test_an_undefined_period_is_left_out_of_means():
    rounds = [{"period_1_auc": 0.5}, {"period_1_auc": 0.75, "period_2_auc": None}]
    assert continual_figures(rounds, "auc") == {"average": 0.75, "plasticity": 0.5, "forgetting": -0.25}
    assert continual_figures([{"period_1_auc": None}], "auc") == {}
