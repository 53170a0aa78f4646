"""Requirements of strategies: checks before the run, and equal results on host and in graph."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odt_sim.strategies
from odt_sim import Simulation, Strategy, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import StrategyError
from odt_sim.model.tensors import array_of
from odt_sim.strategies import FedAvgFineTune, FedBABU, FedBN, FedPAC, FedPer, FedProx, FedRep, PerFedAvg, Scaffold

SHIPPED: list[type[Strategy]] = [getattr(odt_sim.strategies, name) for name in odt_sim.strategies.__all__]
NEEDS = {
    "apfl": "learning_rate, plain_sgd",
    "apple": "learning_rate, plain_sgd",
    "ditto": "gradient_offset",
    "fedala": "learning_rate, plain_sgd",
    "fedamp": "gradient_offset",
    "fedbabu": "body, train_body",
    "fedbn": "norm",
    "feddbe": "embed, mean_embedding, plain_sgd",
    "feddistill": "distillation",
    "feddyn": "gradient_offset",
    "fedem": "sample_weight",
    "fedkd": "distillation",
    "fedlc": "logit_shift",
    "fednova": "plain_sgd",
    "fedntd": "not_true_distillation",
    "fedpac": "body, embed, prototypes, train_body",
    "fedper": "body",
    "fedphp": "distillation",
    "fedprox": "gradient_offset",
    "fedproto": "embed, prototypes",
    "fedrep": "body, train_body",
    "fedrod": "logit_shift",
    "knn_per": "embed",
    "lg_fedavg": "body",
    "lora": "lora_rank_4",
    "moon": "contrastive, embed",
    "mr_mtl": "gradient_offset",
    "perfedavg": "learning_rate, plain_sgd",
    "pfedme": "gradient_offset, learning_rate",
    "qffl": "learning_rate",
    "scaffold": "gradient_offset, learning_rate, plain_sgd",
}
"""Capabilities that the bare model lacks, by strategy; the other strategies run on it."""
HEADER = ("Paper:", "Rule:", "Travels:", "Stays:", "Deviations:", "nseen", "Hyper-parameters:")
TOPICS = (*HEADER, "statistics", "slots", "Dropout")
"""Topics that the docstring of each strategy must cover."""
CORRECTED = [kind for kind in SHIPPED if "gradient_offset" in kind.needs]


@pytest.fixture
def without_groups(foreign: Path) -> TrainableModel:
    return TrainableModel.from_content((foreign / "plain.tflite").read_bytes(), where="plain")


@pytest.mark.parametrize("kind", SHIPPED, ids=lambda kind: kind.__name__)
def test_bare_model_runs_or_is_refused_before_the_run(
    bare: TrainableModel, small_data: FederatedData, tmp_path: Path, kind: type[Strategy]
) -> None:
    strategy, directory = kind(), tmp_path / "run"
    needs = NEEDS.get(strategy.name)
    if needs is None:
        summary = Simulation(bare, small_data, strategy, rounds=1, directory=directory).run()
        assert np.isfinite(summary["metrics"]["loss"]["mean"])
        return
    with pytest.raises(StrategyError, match=f"^strategy {strategy.name}: needs {needs}, which the model plain lacks"):
        Simulation(bare, small_data, strategy, rounds=1, directory=directory)
    assert not directory.exists()


@pytest.mark.parametrize(
    ("strategy", "name", "needs"),
    [
        (FedAvgFineTune(layers="head"), "without_groups", "head, which"),
        (FedAvgFineTune(layers="chosen"), "without_groups", "head, which"),
        (FedBABU(), "frozen", "train_body, which"),
        (FedBABU(), "digits_mlp", "train_body, which"),
        (FedBABU(fine_tune="head"), "digits_mlp", "train_body, train_head, which"),
        (FedBN(), "small_mlp", "norm, which"),
        (FedPAC(), "small_mlp", "embed, prototypes, which"),
        (FedPer(), "softmax", "body, which"),
        (FedPer(), "without_groups", "head, which"),
        (FedProx(), "adam", "gradient_offset, which"),
        (FedRep(), "digits_mlp", "train_body, train_head, which"),
        (PerFedAvg(), "momentum", "plain_sgd, which"),
        (
            Scaffold(),
            "adam_with_offset",
            r"plain_sgd, which the model adam_with_offset lacks; .*\(plain_sgd: SGD without",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_models_without_a_capability_are_refused(
    request: pytest.FixtureRequest, strategy: Strategy, name: str, needs: str
) -> None:
    with pytest.raises(StrategyError, match=f"^strategy {strategy.name}: needs {needs}"):
        strategy.check(request.getfixturevalue(name))


@pytest.mark.parametrize("name", ["grouped", "small_mlp"])
def test_model_with_a_body_and_a_head_suits_fedbabu_and_fedrep(request: pytest.FixtureRequest, name: str) -> None:
    for strategy in (FedBABU(fine_tune="head"), FedRep()):
        strategy.check(request.getfixturevalue(name))


@pytest.mark.parametrize("kind", CORRECTED, ids=lambda kind: kind.__name__)
def test_gradient_offset_on_host_agrees_with_graph(
    twin: Any, softmax: TrainableModel, softmax_with_offset: TrainableModel, kind: type[Strategy]
) -> None:
    """Plain SGD without the signature agrees to 1e-6 with steps that add the offset in the graph."""
    assert "set_gradient_offset" not in softmax.signatures
    assert "set_gradient_offset" in softmax_with_offset.signatures
    host, graph = (twin.run(kind(), model) for model in (softmax, softmax_with_offset))
    assert host.broadcast.keys() == graph.broadcast.keys()
    for name, found in host.broadcast.items():
        np.testing.assert_allclose(array_of(found), array_of(graph.broadcast[name]), rtol=0, atol=1e-6)
    for device in range(3):
        np.testing.assert_allclose(host.deployed(device).vector, graph.deployed(device).vector, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", SHIPPED, ids=lambda kind: kind.__name__)
def test_header_covers_all_topics(kind: type[Strategy]) -> None:
    text = " ".join((sys.modules[kind.__module__].__doc__ or "").split())
    assert [topic for topic in TOPICS if topic not in text] == []
