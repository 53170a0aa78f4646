"""FedAvg against plain numpy, and identities."""

from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel
from odt_sim.data.devices.federated import FederatedData
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local


def test_agrees_with_numpy(twin: Any, softmax_either_way: TrainableModel) -> None:
    run = twin.run(FedAvg(), softmax_either_way)
    w = twin.initial
    for round in range(1, run.rounds + 1):
        w = twin.mean([twin.descend(w, device, round) for device in range(3)])
    np.testing.assert_allclose(run.weights.vector, w, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, [w] * 3)
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, run.weights.vector)


def test_nothing_stays_on_devices(twin: Any, digits_cnn: TrainableModel) -> None:
    run = twin.run(FedAvg(), digits_cnn, rounds=1)
    assert run.weights.layout == digits_cnn.layout
    assert [run.device(i).state for i in range(3)] == [{}, {}, {}]


def test_one_device_equals_local_training(twin: Any, data: FederatedData) -> None:
    """Plain SGD has no state but the weights, so averaging over one device only rounds."""
    alone = FederatedData("one", data.x, data.y, 10, data.indices, data.offsets[:1])
    together, own = twin.run(FedAvg(), data=alone), twin.run(Local(), data=alone)
    np.testing.assert_allclose(together.weights.vector, own.deployed(0).vector, rtol=0, atol=1e-6)


def test_unseen_devices_get_the_global_model(twin: Any) -> None:
    run = twin.run(FedAvg(), fleet=Fleet(unseen=1))
    (unseen,) = (row for row in run.rows if not row["seen"])
    assert unseen["loss"] == unseen["global_loss"]
    np.testing.assert_array_equal(run.deployed(unseen["device"]).vector, run.weights.vector)


def test_optimizers_start_fresh_every_round(small_twin: Any, momentum: TrainableModel) -> None:
    """A round computed by hand with fresh devices has the bits of a run's second round."""
    one, two = (small_twin.run(FedAvg(), momentum, rounds=rounds) for rounds in (1, 2))
    total, weight = np.zeros(momentum.layout.size), 0.0
    for id in range(3):
        device = two.device(id)
        device.restore(one.weights)
        device.train()
        n = len(device.train_examples)
        total += n * (device.parameters() - one.weights).vector.astype(np.float64)
        weight += n
    expected = one.weights.vector + (total / weight).astype(np.float32)
    np.testing.assert_array_equal(two.weights.vector, expected)
