import pytest

from odt_sim.metrics.names import title_of
from odt_sim.report.formatting import Spread, cell, over_seeds, probability, score, signed, signed_range
from odt_sim.report.sections import device_heading, device_text


@pytest.mark.parametrize(
    ("column", "heading", "text"),
    [
        ("accuracy", "accuracy, %", "25.0"),
        ("local_accuracy", "local accuracy, %", "25.0"),
        ("balanced_accuracy", "balanced accuracy, %", "25.0"),
        ("validation_balanced_accuracy", "validation balanced accuracy, %", "25.0"),
        ("global_auc", "global AUC", "0.250"),
        ("r2", "R²", "0.250"),
        ("local_mse", "local MSE", "0.250"),
        ("fine_tune_epochs", "fine tune epochs", "0.250"),
        ("global_attack_success", "global attack success, %", "25.0"),
        ("token_error_rate", "token error rate, %", "25.0"),
    ],
)
def test_device_columns_have_readable_headings_and_values(column, heading, text):
    assert (device_heading(column), device_text(0.25, column)) == (heading, text)


def test_metrics_have_readable_names():
    assert [title_of(metric) for metric in ("accuracy", "balanced_accuracy", "auc", "r2", "mse")] == [
        "accuracy",
        "balanced accuracy",
        "AUC",
        "R²",
        "MSE",
    ]
    assert (score(0.5, "balanced_accuracy"), score(0.5, "auc"), score(None, "r2")) == ("50.0", "0.500", "–")


def test_differences_have_a_sign_unless_they_are_zero():
    assert [signed(value, "accuracy") for value in (0.0123, -0.5, 0.0001, 0.0, None)] == [
        "+1.2",
        "−50.0",
        "0.0",
        "0.0",
        "–",
    ]
    assert [signed(value, "mse") for value in (0.00012, -1234.0)] == ["+0.000120", "−1,234"]
    assert (signed_range((-0.01, 0.02), "accuracy"), signed_range(None, "accuracy")) == ("−1.0 to +2.0", "–")


def test_small_p_is_shown_as_a_bound():
    assert [probability(p) for p in (0.00001, 0.001, 0.04567, 1.0, None)] == ["<0.001", "0.001", "0.046", "1.000", "–"]


@pytest.mark.parametrize(
    ("mean", "std", "unit", "text"),
    [
        (0.75, None, "percent", ("75.0", "")),
        (0.75, 0.5, "percent", ("75.0", "±50.0")),
        (12.0, None, "count", ("12", "")),
        (12.0, 1.5, "count", ("12.0", "±1.5")),
        (12.5, 0.7, "count", ("12.5", "±0.7")),
        (12345.5, 0.7, "count", ("12,346", "±1")),
        (0.01234, None, "number", ("0.0123", "")),
    ],
)
def test_cells_follow_the_unit_of_their_column(mean, std, unit, text):
    assert cell(Spread(mean, std), unit) == text


def test_equal_figures_of_seeds_do_not_spread():
    assert over_seeds([0.08384] * 3) == Spread(0.08384, 0.0)
    assert over_seeds([0.08384]) == Spread(0.08384, None)
