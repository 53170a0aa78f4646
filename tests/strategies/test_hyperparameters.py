"""Hyper-parameters as fields of classes, given as Python's and as numpy's numbers."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import odt_sim.strategies
from odt_sim import Strategy
from odt_sim.errors import ConfigurationError
from odt_sim.hyperparameters import HyperParameter, choice, count, number
from odt_sim.strategies import FedAvg


@pytest.mark.parametrize(
    ("declared", "value", "kind"),
    [
        *((count(1, 1), value, int) for value in (np.int64(3), np.uint8(3), 3)),
        *((number(1.0), value, kind) for value, kind in ((np.float32(0.5), float), (0.5, float), (1, int))),
    ],
)
def test_numbers_of_numpy_become_pythons(declared: HyperParameter, value: Any, kind: type) -> None:
    assert type(declared.checked("strategy.mu", value)) is kind
    assert declared.checked("strategy.mu", value) == value


@pytest.mark.parametrize("value", [True, np.bool_(True), "1", None, 1.5, np.float32(2.0), 0])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^strategy\.models: expected a whole number of at least 1, found "):
        count(1, 1).checked("strategy.models", value)


@pytest.mark.parametrize("value", [True, np.bool_(True), "1", None, 1j, np.float32("nan"), float("inf"), -1])
def test_what_is_no_number_in_range_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^strategy\.mu: expected a number of at least 0, found "):
        number(1.0).checked("strategy.mu", value)


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


OUT_OF_RANGE: dict[str, dict[str, Sequence[Any]]] = {
    "AFL": {"rate": [-1]},
    "APFL": {"alpha": [-0.1, 1.1]},
    "APPLE": {"relation_rate": [2], "regularization": [-1], "decay_rounds": [0], "unseen_epochs": [-1]},
    "Clustered": {"mean_norm": [0, 1.1], "similarity": [-1.1, 1.1]},
    "Ditto": {"regularization": [-0.1, float("inf"), "1"]},
    "FedALA": {"rate": [0], "sample": [0, 1.1]},
    "FedAMP": {"sigma": [0], "alpha": [11], "regularization": [-1], "unseen_epochs": [-1]},
    "FedAdagrad": {"tau": [0]},
    "FedAdam": {"beta_1": [-0.1]},
    "FedAvg": {"server_learning_rate": [0, True], "weighting": ["by_loss"]},
    "FedAvgFineTune": {"max_epochs": [-1], "layers": ["last"]},
    "FedAvgM": {"beta": [1], "server_learning_rate": [0]},
    "FedBABU": {"fine_tune": ["body"], "fine_tune_epochs": [-1]},
    "FedDBE": {"strength": [-1]},
    "FedDistill": {"gamma": [-1], "unseen_epochs": [-1]},
    "FedDyn": {"alpha": [-0.1]},
    "FedEM": {"components": [0]},
    "FedFomo": {"models": [0], "unseen_epochs": [-1]},
    "FedKD": {"energy_start": [0], "energy_end": [1.5], "rounds": [0], "unseen_epochs": [-1]},
    "FedLC": {"tau": [-1]},
    "FedNTD": {"beta": [-1], "temperature": [0]},
    "FedPAC": {"strength": [-1], "head_epochs": [0], "unseen_epochs": [-1]},
    "FedPHP": {"strength": [-1], "temperature": [0], "momentum": [1], "participations": [0], "unseen_epochs": [-1]},
    "FedPer": {"unseen_epochs": [-1, 1.5, "many", True]},
    "FedProto": {"strength": [-1], "unseen_epochs": [-1]},
    "FedProx": {"mu": [-1, float("nan")]},
    "FedRep": {"head_epochs": [0]},
    "FedRoD": {"unseen_epochs": [-1]},
    "FedYogi": {"beta_2": [1.0]},
    "IFCA": {"clusters": [0], "warm_up_rounds": [-1]},
    "Interpolation": {"unseen_epochs": [-1]},
    "KNNPer": {"neighbours": [0]},
    "LoRA": {"rank": [0]},
    "MRMTL": {"regularization": [-0.1, float("inf"), "1"]},
    "Moon": {"mu": [-1], "temperature": [0]},
    "PFedHN": {"server_learning_rate": [0], "embedding_size": [0], "hidden_size": [0], "hidden_layers": [-1]},
    "PFedMe": {"regularization": [0], "inner_steps": [0], "outer_learning_rate": [-1], "unseen_epochs": [-1]},
    "PerFedAvg": {"adaptation_rate": [0]},
    "QFFL": {"q": [-1]},
    "Scaffold": {"option": [3]},
}


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [(name, key, value) for name, each in OUT_OF_RANGE.items() for key, values in each.items() for value in values],
)
def test_settings_of_strategies_out_of_range(name: str, setting: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^strategy\.{setting}: expected .*, found {value!r}$"):
        getattr(odt_sim.strategies, name)(**{setting: value})
