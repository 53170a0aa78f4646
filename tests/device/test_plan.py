"""The ranges of a training plan."""

import pytest

from odt_sim import TrainingPlan
from odt_sim.errors import ConfigurationError


def test_defaults() -> None:
    assert TrainingPlan() == TrainingPlan(epochs=1, learning_rate=None)
    assert TrainingPlan(epochs=0, learning_rate=1e-9).epochs == 0


@pytest.mark.parametrize("rate", [0.0, -0.1, float("nan"), float("inf")])
def test_learning_rate(rate: float) -> None:
    with pytest.raises(ConfigurationError, match=r"train\.learning_rate: expected a number above 0, found"):
        TrainingPlan(learning_rate=rate)


def test_epochs() -> None:
    with pytest.raises(ConfigurationError, match=r"train\.epochs: expected at least 0, found -1"):
        TrainingPlan(epochs=-1)
