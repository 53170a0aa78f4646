"""Early stopping decides only from the records of rounds."""

from pathlib import Path
from typing import Any

import pytest
from written_runs import round_record

from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import RunInfo
from odt_sim.observers.early_stopping import EarlyStopping


def stopped_after(stopping: EarlyStopping, *values: float | None, metric: str = "accuracy", recorded: int = 0) -> Any:
    """Return the round in which a run with these validation results stops; None means a round without evaluation."""
    columns = [{} if value is None else {f"validation_{metric}": value} for value in values]
    records = [round_record(number, **column) for number, column in enumerate(columns, 1)]
    if stopping.on_begin(RunInfo("fedavg", {}, Path("run"), len(values), records[:recorded])):
        return recorded
    return next((record.round for record in records[recorded:] if stopping.on_round(record)), None)


@pytest.mark.parametrize(
    ("values", "metric", "expected"),
    [
        ((0.5, None, 0.9, 0.8), "accuracy", 3),
        ((0.5, 0.7), "accuracy", None),
        ((2.0, 0.9, 0.8), "mse", 2),
    ],
)
def test_target_stops_at_the_first_evaluation_that_reaches_it(values: Any, metric: str, expected: int | None) -> None:
    assert stopped_after(EarlyStopping("target", target=0.9), *values, metric=metric) == expected


@pytest.mark.parametrize(
    ("values", "metric", "expected"),
    [
        ((0.5, 0.6, None, 0.6, 0.5, 0.9), "accuracy", 5),
        ((0.5, 0.4, 0.6, 0.5, 0.7), "accuracy", None),
        ((0.5, 0.6, 0.7), "mse", 3),
    ],
)
def test_plateau_stops_after_evaluations_without_improvement(values: Any, metric: str, expected: int | None) -> None:
    assert stopped_after(EarlyStopping("plateau", patience=2), *values, metric=metric) == expected


@pytest.mark.parametrize("recorded", range(6))
def test_resumed_run_stops_after_the_same_round(recorded: int) -> None:
    stopping = EarlyStopping("plateau", patience=2)
    assert stopped_after(stopping, 0.5, 0.6, None, 0.6, 0.5, 0.9, recorded=recorded) == 5
    assert stopping.reason == "validation accuracy did not improve in 2 evaluations, round 5"


def test_reason_of_one_evaluation_is_singular() -> None:
    stopping = EarlyStopping("plateau", patience=1)
    assert stopped_after(stopping, 0.5, 0.4) == 2
    assert stopping.reason == "validation accuracy did not improve in 1 evaluation, round 2"


def test_reason_names_target_and_round() -> None:
    stopping = EarlyStopping("target", target=0.9)
    stopped_after(stopping, 0.5, 0.95)
    assert stopping.reason == "validation accuracy reached 0.9 (0.95), round 2"


def test_evaluation_without_validation_examples_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^early stopping: no validation examples; set split\.validation"):
        EarlyStopping("plateau").on_round(round_record(1, accuracy=0.5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"until": "soon"}, "until: expected target or plateau, found 'soon'"),
        ({"until": "target"}, "until: target needs a target, found None; give one, such as target=0.9"),
        ({"until": "target", "target": "0.9"}, "until: target needs a target, found '0.9'; give one"),
        ({"until": "target", "target": float("nan")}, "until: target needs a target, found nan; give one"),
        ({"until": "plateau", "patience": 0}, "patience: expected a whole number of at least 1, found 0"),
        ({"until": "plateau", "patience": 1.5}, "patience: expected a whole number of at least 1, found 1.5"),
        ({"until": "plateau", "patience": "3"}, "patience: expected a whole number of at least 1, found '3'"),
    ],
)
def test_invalid_condition_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        EarlyStopping(**arguments)


@pytest.mark.parametrize("stopping", [EarlyStopping("target", target=0.3), EarlyStopping("plateau", patience=1)])
def test_a_round_that_leaves_the_metric_undefined_decides_nothing(stopping: EarlyStopping) -> None:
    """Another metric of the round must not stop the run."""
    undefined = {"validation_auc": None, "validation_accuracy": 0.9}
    assert not any(stopping.on_round(round_record(number, **undefined)) for number in (1, 2, 3))
