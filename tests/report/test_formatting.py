import pytest

from odt_sim.report.formatting import metric_name, score
from odt_sim.report.page_tables import _heading, _text


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
    ],
)
def test_columns_of_devices_as_a_reader_sees_them(column, heading, text):
    assert (_heading(column), _text(0.25, column)) == (heading, text)


def test_metrics_as_they_are_written():
    assert [metric_name(metric) for metric in ("accuracy", "balanced_accuracy", "auc", "r2", "mse")] == [
        "accuracy",
        "balanced accuracy",
        "AUC",
        "R²",
        "MSE",
    ]
    assert (score(0.5, "balanced_accuracy"), score(0.5, "auc"), score(None, "r2")) == ("50.0", "0.500", "–")
