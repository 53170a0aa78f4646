"""FedPer against plain numpy: one body, personal heads."""

from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel
from odt_sim.model.contract.manifest import Parameter
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedper import FedPer

RATE = 0.1


def test_agrees_with_numpy(twin: Any, split_softmax: TrainableModel) -> None:
    """The kernel is averaged, the biases are the heads."""
    run = twin.run(FedPer(), split_softmax)
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


def test_shared_body_and_personal_heads(twin: Any, digits_mlp: TrainableModel) -> None:
    run = twin.run(FedPer(), digits_mlp)
    head = digits_mlp.layout.select(lambda p: p.group == "head")
    body = digits_mlp.layout.select(lambda p: p.group != "head")
    deployed = [run.deployed(i) for i in range(3)]
    for weights in deployed:
        np.testing.assert_array_equal(weights.select(body).vector, run.weights.vector)
    assert len({weights.select(head).vector.tobytes() for weights in deployed}) == 3
    assert {name for i in range(3) for name in run.device(i).state} == {"own"}


def test_unseen_device_trains_its_head_under_the_shared_body(twin: Any, split_softmax: TrainableModel) -> None:
    """The exported head trains for four epochs, nothing else moves, and nothing is kept."""
    run = twin.run(FedPer(unseen_epochs=4), split_softmax, fleet=Fleet(unseen=1))
    unseen = run.unseen
    w = np.concatenate([run.weights.vector, twin.initial[-10:]]).astype(np.float64)
    for x, y in twin.batches(unseen, run.rounds, range(4)):
        w[-10:] -= RATE * twin.gradient(w, x, y)[-10:]
    deployed = run.deployed(unseen)
    np.testing.assert_array_equal(deployed.tensors()[0], run.weights.tensors()[0])
    np.testing.assert_allclose(deployed.vector, w, rtol=0, atol=1e-5)
    assert run.device(unseen).state == {}


def test_zero_epochs_keeps_the_exported_head(twin: Any, split_softmax: TrainableModel) -> None:
    run = twin.run(FedPer(unseen_epochs=0), split_softmax, fleet=Fleet(unseen=1))
    kernel, bias = run.deployed(run.unseen).tensors()
    np.testing.assert_array_equal(bias, twin.model.bias)
    np.testing.assert_array_equal(kernel, run.weights.tensors()[0])


def test_sharing_everything_equals_fedavg(twin: Any, split_softmax: TrainableModel) -> None:
    class SharesAll(FedPer):
        def shared(self, parameter: Parameter) -> bool:
            return True

    one, other = twin.run(SharesAll(), split_softmax), twin.run(FedAvg(), split_softmax)
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    assert one.figures == other.figures
