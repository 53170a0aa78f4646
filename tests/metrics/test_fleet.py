import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.metrics.fleet import evaluation_columns, fleet_figures, fraction_hurt, gains
from odt_sim.metrics.names import first_metric
from odt_sim.metrics.tasks import TASK_METRICS

NAN = float("nan")


def rows(metric, values, examples=None, **columns):
    examples = examples or [1] * len(values)
    table = [{metric: value, "examples": count, "seen": True} for value, count in zip(values, examples, strict=True)]
    return [row | {name: column[i] for name, column in columns.items()} for i, row in enumerate(table)]


fleets = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 100)), min_size=1, max_size=30)


def test_figures_of_an_accuracy_are_known():
    figures = fleet_figures(rows("accuracy", [0.0, 0.5, 1.0, 0.5, 0.5], [1, 1, 6, 1, 1]), "accuracy")
    assert figures.devices == 5
    assert figures.weighted_mean == pytest.approx(0.75)
    assert figures.mean == pytest.approx(0.5)
    assert figures.std == pytest.approx(np.sqrt(0.5 / 5))
    assert figures.bottom_decile == pytest.approx(0.2)  # a tenth of the way through 5 devices: 0.4 between 0 and 0.5
    assert figures.top_decile == pytest.approx(0.8)
    assert figures.worst == 0.0


def test_bottom_and_worst_of_a_loss_are_its_high_end():
    figures = fleet_figures(rows("loss", [0.0, 1.0, 2.0]), "loss")
    assert (figures.bottom_decile, figures.top_decile, figures.worst) == pytest.approx((1.8, 0.2, 2.0))


@given(fleets)
def test_accuracy_and_its_error_mirror_each_other(fleet):
    values, examples = zip(*fleet, strict=True)
    right = fleet_figures(rows("accuracy", values, examples), "accuracy")
    wrong = fleet_figures(rows("loss", [1 - value for value in values], examples), "loss")
    for name in ("weighted_mean", "mean", "bottom_decile", "top_decile", "worst"):
        assert getattr(right, name) == pytest.approx(1 - getattr(wrong, name), abs=1e-9)
    assert right.std == pytest.approx(wrong.std, abs=1e-9)


@given(fleets)
def test_figures_are_ordered(fleet):
    values, examples = zip(*fleet, strict=True)
    figures = fleet_figures(rows("accuracy", values, examples), "accuracy")
    tolerance = 1e-9
    assert figures.worst <= figures.bottom_decile + tolerance
    assert figures.bottom_decile <= figures.top_decile + tolerance
    assert figures.worst - tolerance <= figures.weighted_mean <= max(values) + tolerance


@given(fleets, st.randoms())
def test_order_of_devices_does_not_matter(fleet, random):
    shuffled = random.sample(fleet, len(fleet))
    one, other = (fleet_figures(rows("accuracy", *zip(*some, strict=True)), "accuracy") for some in (fleet, shuffled))
    assert one.weighted_mean == pytest.approx(other.weighted_mean)
    assert one.bottom_decile == pytest.approx(other.bottom_decile)


@given(st.lists(st.floats(0, 1), min_size=1), st.integers(1, 9))
def test_equal_examples_make_both_means_equal(values, count):
    figures = fleet_figures(rows("accuracy", values, [count] * len(values)), "accuracy")
    assert figures.weighted_mean == pytest.approx(figures.mean)


def test_devices_without_a_finite_value_or_an_example_are_left_out():
    table = rows("loss", [1.0, NAN, None, float("inf"), 5.0], [2, 2, 2, 2, 0])
    figures = fleet_figures(table, "loss")
    assert (figures.devices, figures.weighted_mean, figures.worst) == (1, 1.0, 1.0)


def test_fleet_without_any_value_has_no_figures():
    assert fleet_figures([], "accuracy") is None
    assert fleet_figures(rows("accuracy", [None, NAN]), "accuracy") is None


def test_gain_is_a_higher_accuracy_or_a_lower_error():
    table = rows("accuracy", [0.75, 0.5, 0.5], local_accuracy=[0.5, 0.75, None])
    np.testing.assert_array_equal(gains(table, "accuracy", "local_accuracy"), [0.25, -0.25, NAN])
    table = rows("mse", [0.75, 0.5, NAN], local_mse=[0.5, 0.75, 1.0])
    np.testing.assert_array_equal(gains(table, "mse", "local_mse"), [-0.25, 0.25, NAN])


def test_hurt_devices_are_strictly_worse():
    assert fraction_hurt(np.array([0.1, 0.0, -0.1, -0.2, NAN])) == 0.5
    assert fraction_hurt(np.array([NAN])) is None
    assert fraction_hurt(np.zeros(0)) is None


def test_round_is_evaluated_over_seen_and_unseen_devices():
    table = [
        {"seen": True, "examples": 1, "accuracy": 0.0, "loss": 2.0},
        {"seen": True, "examples": 3, "accuracy": 1.0, "loss": NAN},
        {"seen": False, "examples": 9, "accuracy": 0.5, "loss": 1.0},
        {"seen": False, "examples": 1, "accuracy": 0.7, "loss": 3.0},
    ]
    assert evaluation_columns(table, TASK_METRICS["classification"]) == {
        "accuracy": 0.75,
        "accuracy_unweighted": 0.5,
        "accuracy_unseen": 0.6,
        "loss": 2.0,
        "loss_unweighted": 2.0,
        "loss_unseen": 2.0,
    }


def test_columns_of_unseen_devices_are_absent_without_any():
    columns = evaluation_columns(
        [{"seen": True, "examples": 2, "mse": 0.5, "mae": 0.25, "loss": 0.5}], TASK_METRICS["regression"]
    )
    assert set(columns) == {"mse", "mse_unweighted", "mae", "mae_unweighted", "loss", "loss_unweighted"}
    json.dumps(columns, allow_nan=False)


def test_undefined_first_metric_has_no_substitute():
    """A run with AUC as first metric must not use accuracy in a round without a defined AUC."""
    table = [{"seen": True, "examples": 2, "accuracy": 0.5, "validation_examples": 2, "validation_accuracy": 1.0}]
    columns = evaluation_columns(table, ("auc", "accuracy"))
    assert (columns["auc"], columns["validation_auc"]) == (None, None)
    assert first_metric(columns) == first_metric(columns, "validation_") == "auc"
    without = evaluation_columns([{"seen": True, "examples": 2, "accuracy": 0.5}], ("auc", "accuracy"))
    assert "validation_auc" not in without
