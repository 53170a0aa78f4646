"""FedPer against plain numpy: one body, personal heads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.model.contract.manifest import Parameter
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedper import FedPer

Simulate = Callable[..., Any]
RATE = 0.1


def test_agrees_with_numpy(simulate: Simulate, twin: Any, split_softmax: TrainableModel, data: FederatedData) -> None:
    """The kernel is averaged, the biases are the heads."""
    run = simulate(FedPer(), split_softmax, data)
    models = [twin.model.copy() for _ in range(3)]
    for round in range(1, run.rounds + 1):
        for device, own in enumerate(models):
            twin.train(own, device, round)
        body = twin.average(models).kernel
        for own in models:
            own.kernel = body.copy()
    assert run.weights.layout.names == split_softmax.layout.names[:1]
    np.testing.assert_allclose(run.weights.tensors()[0], body, rtol=0, atol=1e-5)
    for device, own in enumerate(models):
        np.testing.assert_allclose(run.deployed(device).tensors()[1], own.bias, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, models)


def test_shared_body_and_personal_heads(simulate: Simulate, digits_mlp: TrainableModel, data: FederatedData) -> None:
    run = simulate(FedPer(), digits_mlp, data)
    head = digits_mlp.layout.select(lambda p: p.group == "head")
    body = digits_mlp.layout.select(lambda p: p.group != "head")
    deployed = [run.deployed(i) for i in range(3)]
    for weights in deployed:
        np.testing.assert_array_equal(weights.select(body).vector, run.weights.vector)
    assert len({weights.select(head).vector.tobytes() for weights in deployed}) == 3
    assert {name for i in range(3) for name in run.device(i).state} == {"own"}


def test_unseen_device_trains_its_head_under_the_shared_body(
    simulate: Simulate, twin: Any, split_softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    """The exported head trains for four epochs, nothing else moves, and nothing is kept."""
    run = simulate(FedPer(unseen_epochs=4), split_softmax, data, fleet=Fleet(unseen=1))
    unseen = unseen_of(run)
    w = np.concatenate([run.weights.vector, twin.initial[-10:]]).astype(np.float64)
    for x, y in twin.batches(unseen, run.rounds, range(4)):
        w[-10:] -= RATE * twin.gradient(w, x, y)[-10:]
    deployed = run.deployed(unseen)
    np.testing.assert_array_equal(deployed.tensors()[0], run.weights.tensors()[0])
    np.testing.assert_allclose(deployed.vector, w, rtol=0, atol=1e-5)
    assert run.device(unseen).state == {}


def test_zero_epochs_keeps_the_exported_head(
    simulate: Simulate, twin: Any, split_softmax: TrainableModel, data: FederatedData, unseen_of: Any
) -> None:
    run = simulate(FedPer(unseen_epochs=0), split_softmax, data, fleet=Fleet(unseen=1))
    kernel, bias = run.deployed(unseen_of(run)).tensors()
    np.testing.assert_array_equal(bias, twin.model.bias)
    np.testing.assert_array_equal(kernel, run.weights.tensors()[0])


def test_sharing_everything_equals_fedavg(
    simulate: Simulate, split_softmax: TrainableModel, data: FederatedData
) -> None:
    class SharesAll(FedPer):
        def shared(self, parameter: Parameter) -> bool:
            return True

    one, other = simulate(SharesAll(), split_softmax, data), simulate(FedAvg(), split_softmax, data)
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    assert one.figures == other.figures


def test_needs_a_body_and_a_head(foreign: Path, softmax: TrainableModel) -> None:
    model = TrainableModel.from_content((foreign / "plain.tflite").read_bytes(), where="plain")
    with pytest.raises(StrategyError, match=r"strategy fedper: needs head, which the model plain lacks; export the"):
        FedPer().check(model)
    with pytest.raises(StrategyError, match=r"needs body, which the model softmax lacks"):
        FedPer().check(softmax)


@pytest.mark.parametrize("epochs", [-1, 1.5, "many", True])
def test_epochs_out_of_range(epochs: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"strategy\.unseen_epochs: expected a whole number of at least 0, found"
    ):
        FedPer(unseen_epochs=epochs)
