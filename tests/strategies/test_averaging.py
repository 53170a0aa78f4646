"""Server learning rate and weighting of averaging strategies, against plain numpy."""

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import odt_sim.strategies
from odt_sim import Strategy, TrainableModel, Weights
from odt_sim.aggregators import Median
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.weights import Layout
from odt_sim.strategies import (
    IFCA,
    MRMTL,
    QFFL,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedNova,
    FedPer,
    FedProx,
    Scaffold,
)
from odt_sim.strategies.base import AVERAGING as NAMES
from odt_sim.strategies.state import stepped

SHIPPED: dict[str, type[Strategy]] = {name: getattr(odt_sim.strategies, name) for name in odt_sim.strategies.__all__}
AVERAGING = [name for name, kind in SHIPPED.items() if kind.hyperparameters.keys() >= NAMES]
UNIFORM = {"FedDyn", "FedRep", "PFedMe", "PerFedAvg", "QFFL", "Scaffold"}
"""Strategies with equal weights of devices, as in their papers."""
FEW: dict[str, Any] = {"server_learning_rate": 0.3, "weighting": "uniform"}


@pytest.mark.parametrize("name", sorted(AVERAGING))
def test_averaging_strategies_have_the_settings(name: str) -> None:
    kind = SHIPPED[name]
    assert vars(kind(**FEW)).items() >= FEW.items()
    assert kind().weighting == ("uniform" if name in UNIFORM else "by_examples")


def test_strategies_that_average_no_weights_lack_the_settings() -> None:
    lacking = {"AFL", "APPLE", "FedAMP", "FedDistill", "FedFomo", "FedProto", "Local", "PFedHN"}
    assert set(SHIPPED) - set(AVERAGING) - {"Strategy"} == lacking


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(TypeError, match=r"FedAvg\(\) got an unexpected keyword argument 'mu'"):
        FedAvg(mu=1)  # type: ignore[call-arg]


def test_step_takes_statistics_whole() -> None:
    layout = Layout((Parameter("w", (2,)), Parameter("variance", (1,), role="statistic")))
    before, change = (Weights(layout, np.array(v, np.float32)) for v in ([1, 1, 4], [1, -1, -3]))
    assert stepped(before, change, 2.0).vector.tolist() == [3, -1, 1]
    assert stepped(before, change, 1).vector.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "kind", [FedAvg, FedProx, FedNova, FedAvgM, Scaffold, FedDyn, QFFL, MRMTL], ids=lambda k: k.__name__
)
def test_one_round_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel, kind: type[Strategy]) -> None:
    """In the first round the controls of SCAFFOLD, FedDyn and MR-MTL are 0, and their penalties as FedProx's."""
    penalty = {"FedProx": {"mu": 0.2}, "FedDyn": {"alpha": 0.2}, "MRMTL": {"regularization": 0.2}}.get(
        kind.__name__, {}
    )
    w = twin.initial
    near = lambda v: (0.2 if penalty else 0.0) * (v - w)  # noqa: E731
    changes = np.array([twin.descend(w, device, 1, extra=near) - w for device in range(3)])
    for weighting, shares in (("uniform", np.full(3, 1 / 3)), ("by_examples", twin.data.train_sizes / 60)):
        mean = shares @ changes
        if kind is FedNova:
            steps = np.array([4, 6, 2])
            mean = (shares @ steps) * (shares / steps) @ changes
        if kind is QFFL:
            losses = np.array([twin.loss(twin.at(w), device, "train") for device in range(3)])
            normalizers = (changes**2).sum(axis=1) / 0.01 + losses / 0.1
            mean = (shares * losses / 0.1) @ changes / (shares @ normalizers)
        if kind is FedDyn:
            mean = mean + changes.mean(axis=0)  # - h / alpha
        strategy = kind(**penalty, server_learning_rate=0.3, weighting=weighting)
        run = twin.run(strategy, softmax_either_way, rounds=1)
        assert_allclose(run.weights.vector, w + 0.3 * mean, rtol=0, atol=1e-5)


def test_models_of_clusters_take_steps(twin: Any) -> None:
    """The second round splits the devices into clusters."""
    run = twin.run(IFCA(2, 1, server_learning_rate=0.3, weighting="uniform"), rounds=2)
    w = twin.initial
    w = w + 0.3 * np.mean([twin.descend(w, device, 1) - w for device in range(3)], axis=0)
    changes = [twin.descend(w, device, 2) - w for device in range(3)]
    found = [run.broadcast[f"weights.{cluster}"].vector - w for cluster in range(2)]
    cuts = [([0], [1, 2]), ([1], [0, 2]), ([2], [0, 1])]
    fits = [
        all(
            any(np.allclose(f, 0.3 * np.mean([changes[d] for d in part], axis=0), atol=1e-5) for f in found)
            for part in cut
        )
        for cut in cuts
    ]
    assert fits.count(True) == 1


def test_settings_apply_to_the_shared_part(small_twin: Any) -> None:
    run = small_twin.run(FedPer(**FEW), rounds=1)
    w, body = small_twin.initial, slice(0, small_twin.model.head.start)
    trained = [small_twin.descend(w, device, 1)[body] for device in range(3)]
    assert_allclose(run.weights.vector, w[body] + 0.3 * (np.mean(trained, axis=0) - w[body]), rtol=0, atol=1e-5)


def test_server_steps_along_the_aggregators_result(twin: Any) -> None:
    w = twin.initial
    median = np.median([twin.descend(w, device, 1) - w for device in range(3)], axis=0)
    for weighting in ("by_examples", "uniform"):
        strategy = FedAvg(server_learning_rate=0.3, weighting=weighting)
        run = twin.run(strategy, rounds=1, aggregator=Median())
        assert_allclose(run.weights.vector, w + 0.3 * median, rtol=0, atol=1e-5)


class Own(Strategy):
    """A strategy of a user, with its own constructor."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share


def test_own_constructor_keeps_the_defaults(twin: Any) -> None:
    assert "weighting" not in inspect.signature(Own).parameters
    own, plain = (twin.run(strategy, rounds=1) for strategy in (Own(), FedAvg()))
    assert_array_equal(own.weights.vector, plain.weights.vector)
