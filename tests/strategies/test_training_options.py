"""Strategies with files that follow a schedule, average weights, accumulate gradients, or train adapters only."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, Simulation, Strategy, TrainableModel, TrainingPlan, Update, receive
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.export.cache import exported
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.averaging.scaffold import Scaffold
from odt_sim.strategies.base import Tensors
from odt_sim.strategies.shared_parts.fedper import FedPer
from odt_sim.strategies.two_models.pfedme import PFedMe

SPEC = {"loss": "sparse_categorical_crossentropy", "batch_size": 4, "seed": 0}
SCHEDULE = {"name": "PolynomialDecay", "initial_learning_rate": 0.1, "end_learning_rate": 0.01, "decay_steps": 30}
ADAM = {
    "name": "Adam",
    "learning_rate": SCHEDULE,
    "use_ema": True,
    "ema_momentum": 0.5,
    "gradient_accumulation_steps": 2,
}


@pytest.fixture(scope="session")
def averaged() -> TrainableModel:
    """A small perceptron, [4, 6] to 3 classes, under Adam with a schedule, averages and accumulated gradients."""
    build = {"_target_": "odt_sim.export.zoo.mlp", "input_shape": [6], "classes": 3, "hidden": [5]}
    return TrainableModel.load(exported({**SPEC, "name": "averaged", "build": build, "optimizer": ADAM}))


@pytest.fixture(scope="session")
def gpt() -> TrainableModel:
    """A GPT on 6 characters of an alphabet of 5, with adapters of rank 2."""
    build = {"_target_": "odt_sim.export.mini_gpt.mini_gpt", "length": 6, "characters": 5, "rank": 2}
    sizes = {"width": 8, "heads": 2, "blocks": 1}
    optimizer = {"name": "Adam", "learning_rate": 0.03}
    return TrainableModel.load(exported({**SPEC, "name": "gpt", "build": {**build, **sizes}, "optimizer": optimizer}))


def run(
    folder: Path, strategy: Strategy, model: TrainableModel, data: FederatedData, rounds: int, **plan: Any
) -> list[dict[str, Any]]:
    settings = {"rounds": rounds, "evaluate_every": rounds, "plan": TrainingPlan(**plan), "seed": 4}
    Simulation(model, data, strategy, directory=folder, **settings).run()
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("strategy", [FedAvg(), FedPer(), Local()], ids=lambda strategy: strategy.name)
def test_training_with_all_options_learns(
    strategy: Strategy, averaged: TrainableModel, small_data: FederatedData, tmp_path: Path
) -> None:
    rows = run(tmp_path, strategy, averaged, small_data, rounds=4)
    losses = [row["train_loss"] for row in rows]
    assert losses[-1] < 0.9 * losses[0]


def test_a_device_sends_its_averages(averaged: TrainableModel, small_data: FederatedData, tmp_path: Path) -> None:
    run(tmp_path, FedAvg(), averaged, small_data, rounds=1)
    moved, weight = 0.0, 0
    for id in range(3):
        train, *_ = small_data.parts(id)
        rows = small_data.x[train], small_data.y[train]
        device = Device(averaged, rows, seed=4, id=id, round=1)
        for batch in device.batches():
            device.train_step(batch)
        raw = device.weights
        device.finish()
        updates = len(train) // 8  # of two batches of 4
        assert updates < 2 or np.abs(device.weights.vector - raw.vector).max() > 1e-3
        moved = moved + len(train) * (device.weights.vector - device.initial.vector)
        weight += len(train)
    expected = device.initial.vector + moved / weight
    found = TrainableModel.load(tmp_path / "model.tflite")
    np.testing.assert_allclose(Device(found, rows).weights.vector, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (PFedMe(), r"strategy pfedme: needs gradient_offset"),
        (Scaffold(), r"strategy scaffold: needs gradient_offset, plain_sgd"),
    ],
)
def test_strategies_that_need_plain_steps_are_refused(
    strategy: Strategy, message: str, averaged: TrainableModel, small_data: FederatedData, tmp_path: Path
) -> None:
    with pytest.raises(StrategyError, match=message):
        run(tmp_path, strategy, averaged, small_data, rounds=1)


def test_rounds_too_short_to_accumulate_are_refused(
    averaged: TrainableModel, small_data: FederatedData, tmp_path: Path
) -> None:
    message = (
        r"train: expected at least 2 steps in a round, over which .* accumulates gradients, found 1; set train\.steps"
    )
    with pytest.raises(ConfigurationError, match=message):
        run(tmp_path, FedAvg(), averaged, small_data, rounds=1, steps=1)


class ByHand(FedAvg):
    """FedAvg at a rate of 0.4 that halves from round to round."""

    def local(self, device: Device, broadcast: Tensors) -> Update:
        received = receive(device, broadcast)
        losses = device.train(learning_rate=0.4 * 0.5 ** (device.round - 1))
        return Update({"weights": device.weights - received}, len(device.train_examples), losses)


def test_learning_rate_decays_by_the_round(
    small_mlp: TrainableModel, small_data: FederatedData, tmp_path: Path
) -> None:
    """All devices train at the same rate, regardless of their numbers of steps."""
    decaying = run(
        tmp_path / "a", FedAvg(), small_mlp, small_data, rounds=3, learning_rate=0.4, learning_rate_decay=0.5
    )
    by_hand = run(tmp_path / "b", ByHand(), small_mlp, small_data, rounds=3)
    assert [row["train_loss"] for row in decaying] == [row["train_loss"] for row in by_hand]
    assert (tmp_path / "a" / "model.tflite").read_bytes() == (tmp_path / "b" / "model.tflite").read_bytes()


def test_decay_of_a_schedule_is_refused(averaged: TrainableModel, small_data: FederatedData, tmp_path: Path) -> None:
    message = (
        r"train\.learning_rate_decay: expected 1, found 0\.5: the step size of .* follows a schedule; also set train"
    )
    with pytest.raises(ConfigurationError, match=message):
        run(tmp_path, FedAvg(), averaged, small_data, rounds=1, learning_rate_decay=0.5)


def repeating() -> FederatedData:
    """Return three devices of 16 training examples, whose text repeats one pattern each, with the next characters."""
    patterns = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [0, 2, 4, 1, 3]]
    text = np.array([np.tile(pattern, 10)[i : i + 7] for pattern in patterns for i in range(20)], np.int32)
    offsets = np.array([[20 * i, 20 * i + 16, 20 * i + 18, 20 * i + 20] for i in range(3)])
    return FederatedData("repeating", text[:, :-1], text[:, 1:], 5, np.arange(60), offsets)


@pytest.mark.parametrize("strategy", [FedAvg(), FedPer()], ids=lambda strategy: strategy.name)
def test_adapters_of_a_gpt_learn_and_travel_alone(strategy: Strategy, gpt: TrainableModel, tmp_path: Path) -> None:
    rows = run(tmp_path, strategy, gpt, repeating(), rounds=6, epochs=4)
    assert {name.rpartition("/")[2] for name in gpt.moving.names} == {"lora_kernel_a", "lora_kernel_b"}
    shared = gpt.layout.select(lambda p: p.moves and strategy.shared(p)).size
    assert {row["bytes_up"] for row in rows} == {3 * 4 * shared}
    assert rows[-1]["train_loss"] < 0.7 * rows[0]["train_loss"]
