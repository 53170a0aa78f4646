"""Every shipped strategy passes the conformance suite, and the suite finds violations of the contract."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import odt_sim.strategies
from odt_sim import Strategy, TrainableModel
from odt_sim.device.engines import RuntimeChoice
from odt_sim.errors import SimulationError
from odt_sim.strategies import FedAvg, FedPer
from odt_sim.strategies.base import weights_of
from odt_sim.strategies.two_models import fedala
from odt_sim.testing import StrategyConformance, random_data

FAST = {"FedAvg", "Scaffold"}
"""A plain mean, and a strategy with own state; one with an own part runs on other models below. The others are slow."""
SHIPPED = [
    pytest.param(getattr(odt_sim.strategies, name), id=name, marks=[] if name in FAST else pytest.mark.slow)
    for name in odt_sim.strategies.__all__
]


class TestShipped(StrategyConformance):
    """The suite on a network with BatchNormalization and Dropout, or with terms for strategies that need them."""

    known: ClassVar[dict[type[Strategy], dict[str, Any]]] = {}

    @pytest.fixture(autouse=True, params=SHIPPED)
    def given(
        self,
        request: pytest.FixtureRequest,
        model_for: Callable[[Strategy], TrainableModel],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(fedala, "MOST", 12)  # most first learnings on random examples take all passes
        self.kind = request.param
        self.network = model_for(self.strategy())

    def strategy(self) -> Strategy:
        return self.kind()

    def model(self) -> TrainableModel:
        return self.network

    def run(self, directory: Path, **settings: Any) -> dict[str, Any]:
        """Run the strategy; with the default settings once for all tests, which compare it with other runs."""
        if settings not in ({}, {"evaluate_every": 1}):
            return super().run(directory, **settings)
        if self.kind not in self.known:
            self.known[self.kind] = super().run(directory)
        return dict(self.known[self.kind])

    test_equal_seeds_give_equal_bits = None  # type: ignore[assignment]  # separate workers would differ, too


class TestOnTheDefaultModel(StrategyConformance):
    def strategy(self) -> Strategy:
        return FedPer()


class TestOnTheCompiledModel(StrategyConformance):
    """The suite in LiteRT's compiled model; `tests/flex` runs it in TensorFlow's interpreter."""

    runtime = RuntimeChoice("compiled")

    def strategy(self) -> Strategy:
        return FedPer()


class CountsOnItself(FedAvg):
    """Counts its training in an attribute instead of the device's state."""

    def __init__(self) -> None:
        self._times = 0

    def local(self, device: Any, broadcast: Any) -> Any:
        self._times += 1
        update = super().local(device, broadcast)
        return type(update)(update.tensors, update.weight * self._times, update.losses)


class CountsRoundsOnItself(FedAvg):
    def __init__(self) -> None:
        self._rounds = 0

    def aggregate(self, state: Any, updates: Any) -> Any:
        self._rounds += 1
        after = super().aggregate(state, updates)
        return type(after)({**after.broadcast, "rounds": np.array([self._rounds])}, after.private)


class DrawsAnywhere(FedAvg):
    def local(self, device: Any, broadcast: Any) -> Any:
        device.set_gradient_offset(None, np.random.default_rng().random())
        return super().local(device, broadcast)


class WritesIntoItsBroadcast(FedAvg):
    def local(self, device: Any, broadcast: Any) -> Any:
        weights_of(broadcast).vector[:] *= 0.5
        return super().local(device, broadcast)


class WritesExamples(FedAvg):
    def local(self, device: Any, broadcast: Any) -> Any:
        device.train_examples.y[:] = 0
        return super().local(device, broadcast)


class RemembersDeploying(FedAvg):
    def __init__(self) -> None:
        self._deployed = 0

    def deploy(self, device: Any, broadcast: Any) -> Any:
        self._deployed += 1
        return super().deploy(device, broadcast) * (1 + self._deployed)


class DropsSmallDevices(FedAvg):
    def local(self, device: Any, broadcast: Any) -> Any:
        if len(device.train_examples) < device.model.batch_size:
            device.plan = type(device.plan)(epochs=0)
        return super().local(device, broadcast)


class HidesWhatDiverged(FedAvg):
    def local(self, device: Any, broadcast: Any) -> Any:
        update = super().local(device, broadcast)
        device.state["mean"] = np.zeros(1)
        return type(update)({"weights": 0 * weights_of(broadcast)}, update.weight, np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("kind", "test", "error"),
    [
        (DrawsAnywhere, "test_equal_seeds_give_equal_bits", AssertionError),
        (CountsOnItself, "test_separate_workers_give_equal_bits", AssertionError),
        (WritesIntoItsBroadcast, "test_separate_workers_give_equal_bits", SimulationError),
        (CountsRoundsOnItself, "test_resumed_run_gives_equal_bits", AssertionError),
        (RemembersDeploying, "test_evaluation_changes_nothing", AssertionError),
        (WritesIntoItsBroadcast, "test_broadcast_is_not_modified", AssertionError),
        (WritesExamples, "test_examples_stay_unchanged", ValueError),
        (WritesExamples, "test_equal_seeds_give_equal_bits", SimulationError),
        (DropsSmallDevices, "test_device_smaller_than_a_batch_trains", AssertionError),
        (HidesWhatDiverged, "test_diverged_device_is_excluded", AssertionError),
    ],
)
def test_suite_finds_contract_violations(
    grouped: TrainableModel, tmp_path: Path, kind: type[Strategy], test: str, error: type[Exception]
) -> None:
    class Suite(StrategyConformance):
        def strategy(self) -> Strategy:
            return kind()

        def model(self) -> TrainableModel:
            return grouped

    check: Callable[..., None] = getattr(Suite(), test)
    with pytest.raises(error):
        check(**({"tmp_path": tmp_path} if "tmp_path" in check.__code__.co_varnames else {}))


def test_suite_without_strategy_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"StrategyConformance\.strategy: return the strategy to test"):
        StrategyConformance().strategy()


@pytest.mark.parametrize("name", ["regression", "dropout", "any_rows", "softmax"])
def test_random_data_fit_any_model(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """Images, tokens and features; labels and values; fixed and dynamic batch sizes."""
    model = request.getfixturevalue(name)

    class Suite(StrategyConformance):
        def strategy(self) -> Strategy:
            return FedAvg()

        def model(self) -> TrainableModel:
            return model

    Suite().run(tmp_path, rounds=1)
    data = random_data(model, [3, 1])
    assert data.train_sizes.tolist() == [3, 1]
    assert np.array_equal(data.x, random_data(model, [3, 1]).x)


def test_model_of_the_suite_has_what_the_strategy_needs() -> None:
    class Distils(FedAvg):
        needs = frozenset({"distillation"})

    class Suite(StrategyConformance):
        def strategy(self) -> Strategy:
            return Distils()

    assert "teacher_logits" in Suite().model().train_inputs
