import pytest

from odt_sim.errors import ConfigurationError
from odt_sim.metrics.rounds import check_target, reported_round, rounds_to_target, still_improves


def evaluated(round, value, devices=4, metric="accuracy", **columns):
    return {"round": round, f"validation_{metric}": value, "validation_devices": devices, **columns}


def test_round_that_validates_best_is_reported():
    rounds = [evaluated(2, 0.5), evaluated(4, 0.75), {"round": 5}, evaluated(6, 0.625)]
    assert reported_round(rounds, "accuracy") == 4
    errors = [evaluated(2, 0.5, metric="mse"), evaluated(4, 0.25, metric="mse"), evaluated(6, 0.375, metric="mse")]
    assert reported_round(errors, "mse") == 4


def test_earliest_of_equals_is_reported():
    assert reported_round([evaluated(2, 0.5), evaluated(4, 0.75), evaluated(6, 0.75)], "accuracy") == 4


def test_test_examples_do_not_decide_the_reported_round():
    rounds = [evaluated(2, 0.75, accuracy=0.1, loss=9.0), evaluated(4, 0.5, accuracy=1.0, loss=0.0)]
    assert reported_round(rounds, "accuracy") == 2


def test_round_does_not_win_because_devices_drop_out_of_its_mean():
    rounds = [evaluated(2, 3.0, 4, "mse"), evaluated(4, 0.5, 3, "mse"), evaluated(6, 2.0, 4, "mse")]
    assert reported_round(rounds, "mse") == 6
    assert reported_round(rounds[1:2], "mse") == 4


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_round_without_a_finite_figure_is_never_reported(value):
    assert reported_round([evaluated(2, value), evaluated(4, 0.25)], "accuracy") == 4
    assert reported_round([evaluated(2, value)], "accuracy") is None


def test_without_validation_no_round_is_better():
    assert reported_round([{"round": 1, "accuracy": 0.5}, {"round": 2}], "accuracy") is None
    assert reported_round([], "mse") is None


def test_rounds_to_a_target():
    rounds = [
        {"round": 2, "accuracy": 0.5},
        {"round": 3},
        {"round": 4, "accuracy": 0.75},
        {"round": 6, "accuracy": 0.5},
    ]
    assert [rounds_to_target(rounds, "accuracy", target) for target in (0.5, 0.6, 0.75, 0.8)] == [2, 4, 4, None]
    errors = [{"round": 2, "mse": 0.5}, {"round": 4, "mse": 0.25}]
    assert [rounds_to_target(errors, "mse", target) for target in (0.6, 0.3, 0.25, 0.1)] == [2, 4, 4, None]
    assert rounds_to_target([], "mse", 1.0) is None


@pytest.mark.parametrize("target", [85.0, -0.1, float("nan"), float("inf")])
def test_accuracy_target_is_a_fraction(target):
    with pytest.raises(ConfigurationError, match=r"^run\.target: expected an accuracy from 0 to 1, found "):
        check_target(target, "accuracy", "run.target")


def test_error_target_has_no_upper_bound():
    check_target(85.0, "mse", "run.target")
    check_target(1, "accuracy", "run.target")
    check_target(None, "accuracy", "run.target")
    with pytest.raises(ConfigurationError, match=r"^--target: expected a value of mse at least 0, found -1\.0$"):
        check_target(-1.0, "mse", "--target")


def curve(*values, metric="accuracy"):
    return [evaluated(round, value, metric=metric) for round, value in enumerate(values, 1)]


def test_run_still_improves_if_its_last_quarter_is_better_by_more_than_a_hundredth():
    """Of 8 evaluations the last two are the last quarter."""
    flat = (0.2, 0.5, 0.7, 0.78, 0.8, 0.79)
    assert still_improves(curve(*flat, 0.8, 0.82), "accuracy") is True
    assert still_improves(curve(*flat, 0.82, 0.7), "accuracy") is True
    assert still_improves(curve(*flat, 0.807, 0.8), "accuracy") is False
    assert still_improves(curve(*flat, 0.7, 0.6), "accuracy") is False


def test_last_quarter_is_rounded_down():
    """Of 9 evaluations the last two are the last quarter."""
    assert still_improves(curve(0.2, 0.5, 0.7, 0.78, 0.8, 0.79, 0.9, 0.8, 0.8), "accuracy") is False


def test_smaller_error_improves():
    assert still_improves(curve(4.0, 2.0, 1.0, 0.98, metric="mse"), "mse") is True
    assert still_improves(curve(4.0, 2.0, 1.0, 0.995, metric="mse"), "mse") is False
    assert still_improves(curve(4.0, 2.0, 1.0, 1.5, metric="mse"), "mse") is False


def test_few_evaluations_show_no_trend():
    assert still_improves(curve(0.1, 0.5, 0.9), "accuracy") is None
    assert still_improves([{"round": 1}, {"round": 2}], "accuracy") is None
