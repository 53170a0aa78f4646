"""FedProx against plain numpy, its partial work, and FedAvg as its special case."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import TrainableModel
from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedprox import FedProx

Simulate = Callable[..., Any]
MU = 0.5


def test_agrees_with_numpy(
    simulate: Simulate, twin: Any, softmax_either_way: TrainableModel, data: FederatedData
) -> None:
    run = simulate(FedProx(MU), softmax_either_way, data)
    w = twin.initial
    for round in range(1, run.rounds + 1):
        pull = lambda own, start=w: MU * (own - start)  # noqa: E731
        w = twin.mean([twin.descend(w, device, round, extra=pull) for device in range(3)])
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, [w] * 3)
    assert np.abs(run.weights.vector - simulate(FedAvg(), softmax_either_way, data).weights.vector).max() > 1e-3


def test_graph_and_host_agree(
    simulate: Simulate, softmax: TrainableModel, softmax_with_offset: TrainableModel, data: FederatedData
) -> None:
    one, other = (simulate(FedProx(MU), model, data) for model in (softmax, softmax_with_offset))
    np.testing.assert_allclose(one.weights.vector, other.weights.vector, rtol=0, atol=1e-6)


def test_without_a_pull_it_is_fedavg(
    simulate: Simulate, softmax_either_way: TrainableModel, data: FederatedData
) -> None:
    one, other = (simulate(strategy, softmax_either_way, data) for strategy in (FedProx(0), FedAvg()))
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    assert one.rows == other.rows


def test_batchnorm_and_dropout_are_those_of_fedavg(
    simulate: Simulate, grouped: TrainableModel, small_data: FederatedData
) -> None:
    """No term pulls at statistics, and masks are the same: without a pull nothing differs, with one everything does."""
    none, plain, pulled = (simulate(s, grouped, small_data, rounds=2) for s in (FedProx(0), FedAvg(), FedProx(MU)))
    np.testing.assert_array_equal(none.weights.vector, plain.weights.vector)
    for p in grouped.parameters:
        assert not np.array_equal(pulled.weights[p.name], plain.weights[p.name]), p.name


def test_stragglers_do_a_part_and_count(
    simulate: Simulate, twin: Any, softmax: TrainableModel, data: FederatedData
) -> None:
    """Of two epochs a straggler does one."""
    run = simulate(FedProx(MU, stragglers=0.5), softmax, data)
    w, slow = twin.initial, 0
    for round in range(1, run.rounds + 1):
        pull = lambda own, start=w: MU * (own - start)  # noqa: E731
        trained = []
        for device in range(3):
            words = [4, device, round, int.from_bytes(b"stragglers", "big")]
            straggles = np.random.default_rng(words).random() < 0.5
            slow += straggles
            trained.append(twin.descend(w, device, round, range(1 if straggles else 2), pull))
        w = twin.mean(trained)
    assert 0 < slow < 9
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("planned", "expected"), [(0, {0}), (1, {1}), (2, {1}), (5, {1, 2, 3, 4})])
def test_a_straggler_trains_for_fewer_epochs_than_planned(
    device_of: Callable[..., Any], planned: int, expected: set[int]
) -> None:
    steps = [len(FedProx(MU, stragglers=1).local(*device_of(round, planned)).losses) for round in range(1, 41)]
    assert set(steps) == expected  # seven examples are one step an epoch


def test_a_straggler_trains_for_fewer_steps_than_planned(device_of: Callable[..., Any]) -> None:
    devices = [device_of(round, 1) for round in range(1, 41)]
    for device, _ in devices:
        device.plan = replace(device.plan, steps=4)
    assert {len(FedProx(MU, stragglers=1).local(*each).losses) for each in devices} == {1, 2, 3}


@pytest.fixture
def device_of(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> Callable[..., Any]:
    """Returns a function that gives the smallest device in a round, with its broadcast."""
    run = simulate(FedAvg(), softmax, data, rounds=1)

    def device(round: int, epochs: int) -> Any:
        device = run.device(2)
        device.round, device.plan = round, type(device.plan)(epochs, 0.01)
        return device, run.broadcast

    return device


def test_the_report_tells_the_settings(simulate: Simulate, softmax: TrainableModel, data: FederatedData) -> None:
    run = simulate(FedProx(MU, 0.9), softmax, data, rounds=1)
    settings = json.loads((run.directory / "summary.json").read_text())["settings"]
    assert (settings["strategy.mu"], settings["strategy.stragglers"]) == ("0.5", "0.9")


def test_a_model_that_takes_no_offset_is_refused(adam: TrainableModel, foreign: Path) -> None:
    with pytest.raises(StrategyError, match="strategy fedprox: needs gradient_offset, which the model adam lacks"):
        FedProx().check(adam)
    plain = TrainableModel.load(foreign / "plain.tflite", loss="sparse_categorical_crossentropy")
    with pytest.raises(StrategyError, match="needs gradient_offset, which the model plain lacks"):
        FedProx().check(plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mu": -1}, r"^strategy\.mu: expected a number at least 0, found -1$"),
        ({"mu": float("nan")}, r"^strategy\.mu: expected a number at least 0, found nan$"),
        ({"stragglers": 1.5}, r"^strategy\.stragglers: expected a number at least 0 and at most 1, found 1\.5$"),
    ],
)
def test_settings_out_of_range(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FedProx(**settings)
