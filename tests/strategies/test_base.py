"""Defaults and helper functions of the strategy contract."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, Simulation, Strategy, TrainableModel, Weights
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import StrategyError
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Layout
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.base import ServerState, Update, Updates, weights_of
from odt_sim.strategies.shared_parts.fedper import FedPer
from odt_sim.strategies.state import keep, keep_optimizer, recall, recall_optimizer

LAYOUT = Layout((Parameter("w", (2,)), Parameter("b", ())))


def weights(*numbers: float) -> Weights:
    return Weights(LAYOUT, np.array(numbers, np.float32))


def test_strategy_shows_its_settings() -> None:
    assert repr(FedPer(unseen_epochs=3)) == "FedPer(server_learning_rate=1.0, weighting='by_examples', unseen_epochs=3)"


class Demanding(Strategy):
    needs = frozenset({"set_gradient_offset", "train", "embed"})


def test_names_equal_module_names() -> None:
    assert [kind().name for kind in (FedAvgFineTune, FedPer, Local)] == ["fedavg_finetune", "fedper", "local"]


def test_needs_are_checked(softmax: TrainableModel, digits_mlp: TrainableModel) -> None:
    Strategy().check(softmax)
    FedPer().check(digits_mlp)
    with pytest.raises(
        StrategyError,
        match=r"needs embed, set_gradient_offset, which the model softmax lacks \(it has gradient_offset\); export ",
    ):
        Demanding().check(softmax)


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        ("embed", r"found 'embed'; write frozenset\({'embed'}\)"),
        (["embed", "head"], r"found \['embed', 'head'\]; write frozenset\({'embed', 'head'}\)"),
    ],
)
def test_needs_are_a_set(names: Any, advice: str) -> None:
    with pytest.raises(StrategyError, match=f"Mine.needs: expected a set of names, {advice}"):
        type("Mine", (Strategy,), {"needs": names})


def test_unmet_needs_fail_before_the_run(softmax: TrainableModel, data: FederatedData, tmp_path: Path) -> None:
    with pytest.raises(StrategyError, match="needs embed, set_gradient_offset"):
        Simulation(softmax, data, Demanding(), rounds=1, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_default_aggregate_adds_the_mean() -> None:
    state = ServerState({"weights": weights(1, 2, 3), "other": np.ones(2)}, {"secret": np.zeros(1)})
    after = Strategy().aggregate(state, Updates({"weights": weights(0.5, 0, -1)}, weight=7, count=2, participants=2))
    np.testing.assert_array_equal(after.weights.vector, [1.5, 2, 2])
    assert after.broadcast["other"] is state.broadcast["other"]
    assert after.private is state.private
    np.testing.assert_array_equal(state.weights.vector, [1, 2, 3])


def test_isfinite() -> None:
    good = np.ones(2, np.float32)
    assert Update({"weights": weights(1, 2, 3)}, 1, good).isfinite()
    assert Update({}, 1, good[:0]).isfinite()
    assert not Update({"weights": weights(1, np.nan, 3)}, 1, good).isfinite()
    assert not Update({"control": np.array([np.inf])}, 1, good).isfinite()
    assert not Update({}, 1, np.array([1, np.nan], np.float32)).isfinite()


def test_keep_and_recall(digits_mlp: TrainableModel, data: FederatedData) -> None:
    device = Device(digits_mlp, (data.x, data.y))
    exported = device.parameters()
    shared = digits_mlp.layout.select(lambda p: p.group != "head")
    recall(device)  # nothing was kept yet
    np.testing.assert_array_equal(device.parameters().vector, exported.vector)
    keep(device, exported * 2, shared)
    assert set(device.state) == {"own"}
    recall(device)
    after = device.parameters()
    assert [np.array_equal(a, 2 * b) for a, b in zip(after.tensors(), exported.tensors(), strict=True)] == [
        not exported[p.name].any() or p.group == "head" for p in digits_mlp.parameters
    ]
    np.testing.assert_array_equal(after.select(shared).vector, exported.select(shared).vector)


def test_keep_nothing_if_everything_travels(softmax: TrainableModel, data: FederatedData) -> None:
    device = Device(softmax, (data.x, data.y))
    keep(device, device.parameters(), softmax.layout)
    assert device.state == {}


def test_keep_and_recall_optimizer_slots(adam: TrainableModel, small_data: FederatedData) -> None:
    device = Device(adam, (small_data.x, small_data.y))
    device.train(1, 0.01)
    keep_optimizer(device)
    kept = device.optimizer_state()
    device.train(1, 0.01)
    recall_optimizer(device)
    for slot, own in zip(kept, device.optimizer_state(), strict=True):
        np.testing.assert_array_equal(slot, own)
    fresh = Device(adam, (small_data.x, small_data.y))
    recall_optimizer(fresh)
    for slot, own in zip(
        Device(adam, (small_data.x, small_data.y)).optimizer_state(), fresh.optimizer_state(), strict=True
    ):
        np.testing.assert_array_equal(slot, own)


def test_tensor_helpers() -> None:
    tensor = weights(1, 2, 3)
    assert array_of(tensor) is tensor.vector
    array = np.ones(2)
    assert array_of(array) is array
    with pytest.raises(
        StrategyError, match="expected 'weights' to be Weights, found ndarray; set it in init and local"
    ):
        weights_of({"weights": np.zeros(3)})
    with pytest.raises(StrategyError, match="expected 'teacher' to be Weights, found NoneType"):
        weights_of({}, "teacher")
