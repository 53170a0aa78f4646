"""Hyper-parameters as fields of classes, given as Python's and as numpy's numbers."""

import inspect
from typing import Any

import numpy as np
import pytest

from odt_sim import Strategy
from odt_sim._support.checks import checked, checked_count
from odt_sim.errors import ConfigurationError
from odt_sim.hyperparameters import choice, number
from odt_sim.strategies import FedAvg


@pytest.mark.parametrize("value", [np.int64(3), np.uint8(3), 3])
def test_whole_numbers_of_numpy_become_pythons(value: Any) -> None:
    assert type(checked_count("models", value, 1)) is int
    assert checked_count("models", value, 1) == 3


@pytest.mark.parametrize(("value", "kind"), [(np.float32(0.5), float), (0.5, float), (1, int)])
def test_numbers_of_numpy_become_pythons(value: Any, kind: type) -> None:
    assert type(checked("mu", value, 0)) is kind
    assert checked("mu", value, 0) == value


@pytest.mark.parametrize("value", [True, np.bool_(True), "1", None, 1.5, np.float32(2.0), 0])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^strategy\.models: expected a whole number of at least 1, found "):
        checked_count("models", value, 1)


@pytest.mark.parametrize("value", [True, np.bool_(True), "1", None, 1j, np.float32("nan"), float("inf"), -1])
def test_what_is_no_number_in_range_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^strategy\.mu: expected a number of at least 0, found "):
        checked("mu", value, 0)


class Halfway(FedAvg):
    weighting = "uniform"
    share: float = number(0.5, 0, 1, search="interval(0,1)")
    layers: str = choice("all", "head", "body")


class WithInit(Strategy):
    def __init__(self, share: float = 0.5, **averaging: Any) -> None:
        super().__init__(**averaging)
        self.share = share


class Derived(WithInit):
    extent: float = number(1.0, above=True)


def test_fields_are_arguments_with_defaults_of_the_class() -> None:
    strategy = Halfway(0.25, server_learning_rate=np.float32(0.5))
    assert vars(strategy) == {"share": 0.25, "layers": "all", "server_learning_rate": 0.5, "weighting": "uniform"}
    assert [*inspect.signature(Halfway).parameters] == ["share", "layers", "server_learning_rate", "weighting"]
    assert Halfway.hyperparameters["share"].search == "interval(0,1)"


def test_init_of_a_class_passes_the_rest_on() -> None:
    assert [*inspect.signature(Derived).parameters] == ["share", "averaging"]
    assert (Derived(0.3, extent=2.0).extent, Derived().extent, WithInit(weighting="uniform").weighting) == (
        2,
        1,
        "uniform",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 2}, "strategy.share: expected a number of at least 0 and at most 1, found 2"),
        ({"layers": "last"}, "strategy.layers: expected all, head or body, found 'last'"),
    ],
)
def test_fields_are_checked(settings: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        Halfway(**settings)
