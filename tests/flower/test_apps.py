"""Strategies of odt_sim and of Flower over nodes in this process."""

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import FedAdam as FlowerFedAdam
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from nodes import Nodes
from results import left_by

from odt_sim import Fleet, Simulation, TrainableModel, TrainingPlan
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.checkpoint import read_tensors
from odt_sim.errors import ConfigurationError, SimulationError, StrategyError
from odt_sim.export.cache import exported
from odt_sim.flower import client_app, initial_arrays, server_app, weights_of
from odt_sim.strategies import FedAdam, FedAMP, FedAvg, FedPer, FedProx, Scaffold
from odt_sim.testing import PERCEPTRON, assert_same, random_data

OWN = {"plan": TrainingPlan(epochs=2), "seed": 1}


@pytest.fixture(scope="session")
def model() -> TrainableModel:
    return TrainableModel.load(exported(PERCEPTRON))


@pytest.fixture(scope="session")
def data(model: TrainableModel) -> FederatedData:
    return random_data(model, [9, 4, 2, 6])


def run_on(nodes: Nodes, *arguments: Any, **settings: Any) -> None:
    server_app(*arguments, observers=[], **settings)(nodes, Context(1, 1, {}, RecordDict(), {}))


@pytest.mark.parametrize("make", [FedProx, FedAMP, FedPer, FedAdam])
def test_server_app_leaves_the_records_and_models_of_a_simulation(make, model, data, tmp_path):
    """Every file of the run is the same to the bit, but for seconds."""
    settings = {**OWN, "rounds": 3, "evaluate_every": 2, "fleet": Fleet(cohort=3, unseen=1)}
    Simulation(model, data, make(), directory=tmp_path / "own", **settings).run(observers=[])
    app = client_app(model, data, make(), fleet=settings["fleet"], **OWN)
    run_on(Nodes([app] * 4), model, data, make(), directory=tmp_path / "flower", **settings)
    own, flower = left_by(tmp_path / "own"), left_by(tmp_path / "flower")
    assert_same(own, flower)
    assert ("model.tflite" in own) == (make in (FedAvg, FedProx, Scaffold, FedAdam))


def test_nodes_drop_states_that_no_round_needs(model, data, tmp_path):
    """After six rounds a node holds the states of the last two and of the evaluated ones."""
    nodes = Nodes([client_app(model, data, FedPer(), **OWN)] * 4)
    run_on(nodes, model, data, FedPer(), directory=tmp_path, rounds=6, evaluate_every=3, **OWN)
    held = {name.split(".")[1] for context in nodes._contexts.values() for name in context.state["odt_sim.states"]}
    assert held == {"3", "5", "6"}


def test_strategies_of_flower_train_the_devices(model, data, tmp_path):
    """Five rounds of Flower's FedAvg give the weights of odt_sim's to 1e-6, and the same mean accuracy."""
    settings = {**OWN, "rounds": 5, "evaluate_every": 1}
    Simulation(model, data, FedAvg(), directory=tmp_path, **settings).run(observers=[])
    nodes = Nodes([client_app(model, data, FedAvg(), **OWN)] * 4)
    result = FlowerFedAvg().start(nodes, initial_arrays(model, FedAvg()), num_rounds=5)
    expected = read_tensors(tmp_path / "checkpoint" / "server.5.safetensors")[0]["broadcast.weights"]
    np.testing.assert_allclose(weights_of(model, result.arrays).vector, expected, atol=1e-6, rtol=0)
    rounds = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    for record in rounds:
        metrics = result.evaluate_metrics_clientapp[record["round"]]
        assert metrics["accuracy"] == pytest.approx(record["accuracy"])
        assert result.train_metrics_clientapp[record["round"]]["train_loss"] == pytest.approx(record["train_loss"])


def test_personal_layers_stay_on_nodes_under_strategies_of_flower(model, data):
    """FedPer's head does not travel, and is there in the next round: two rounds differ from two first rounds."""
    arrays = initial_arrays(model, FedPer())
    assert not any(name.startswith("head") for name in arrays)
    assert len(arrays) < len(model.parameters)
    nodes = Nodes([client_app(model, data, FedPer(), **OWN)] * 4)
    FlowerFedAdam(eta=0.01).start(nodes, arrays, num_rounds=2)
    states = [context.state["odt_sim.states"] for context in nodes._contexts.values()]
    assert [list(state) for state in states] == [[f"devices/000/{i}.2.safetensors"] for i in range(4)]


def test_strategies_that_send_more_than_weights_need_the_server_app(model, data):
    with pytest.raises(StrategyError, match=r"scaffold: its server sends control, weights.*server_app"):
        initial_arrays(model, Scaffold())


def test_arrays_of_another_model_are_refused(model):
    arrays = initial_arrays(model, FedAvg())
    arrays["other"] = next(iter(arrays.values()))
    with pytest.raises(StrategyError, match=r"no parameter 'other'.*initial_arrays"):
        weights_of(model, arrays)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_nodes_with_other_settings_are_refused(model, data, tmp_path):
    nodes = Nodes([client_app(model, data, FedProx(mu=0.5), **OWN)] * 4)
    with pytest.raises(
        ConfigurationError,
        match=r"device 0 has strategy.mu 0.5, but the server has 0.1; pass the same arguments to client_app",
    ):
        run_on(nodes, model, data, FedProx(mu=0.1), directory=tmp_path, rounds=1, **OWN)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ([0, 1, 1, 2], "two nodes have the partition-id 1"),
        ([0, 1, 2, 4], "expected a partition-id from 0 to 3, found 4; start the node with --node-config"),
    ],
)
def test_every_node_is_a_device_of_its_own(partitions, message, model, data, tmp_path):
    nodes = Nodes([client_app(model, data, FedAvg(), **OWN)] * 4, partitions)
    with pytest.raises((ConfigurationError, SimulationError), match=message):
        run_on(nodes, model, data, FedAvg(), directory=tmp_path, rounds=1, **OWN)


class Vanishing(Nodes):
    """Nodes of which one fails in the second round."""

    def _push(self, message: Any) -> str:
        body = json.loads(message.content["body"]["json"])
        if body.get("device") == 2 and body["round"] == 2:
            message.content = RecordDict()
        return super()._push(message)


def test_a_node_that_fails_is_left_out_of_the_round(model, data, tmp_path):
    nodes = Vanishing([client_app(model, data, FedAvg(), **OWN)] * 4)
    run_on(nodes, model, data, FedAvg(), directory=tmp_path, rounds=3, evaluate_every=3, **OWN)
    rounds = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert [record["excluded_devices"] for record in rounds] == [[], [2], []]
    assert rounds[1]["excluded_reasons"]["2"].startswith("node failed: ")


def test_a_run_on_nodes_cannot_be_resumed(model, data, tmp_path):
    nodes = Nodes([client_app(model, data, FedAvg(), **OWN)] * 4)
    with pytest.raises(ConfigurationError, match="device states are lost when the Flower run ends"):
        run_on(nodes, model, data, FedAvg(), directory=tmp_path, rounds=1, resume=True, **OWN)


def test_apps_check_what_they_are_given(model, data):
    with pytest.raises(ConfigurationError, match="strategy: expected a Strategy, found the class FedAvg"):
        client_app(model, data, FedAvg, **OWN)
