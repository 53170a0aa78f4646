"""FedBN: normalization is personal, everything else is one model."""

from typing import Any

import numpy as np

from odt_sim import Fleet, TrainableModel
from odt_sim.device.runtime import Runtime
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedbn import FedBN


def test_one_round_equals_fedavg_except_normalization(small_twin: Any, grouped: TrainableModel) -> None:
    """Bit for bit: all devices start from the same weights. Statistics stay with scale and shift."""
    own, whole = (small_twin.run(strategy, grouped, rounds=1) for strategy in (FedBN(), FedAvg()))
    np.testing.assert_array_equal(own.weights.vector, whole.weights.select(own.weights.layout).vector)
    kept = [own.device(id).state["own"] for id in range(3)]
    assert {name.split("/")[-1] for name in kept[0].layout.names} == {"gamma", "beta", "moving_mean", "moving_variance"}
    mean = np.average([w.vector for w in kept], axis=0, weights=small_twin.data.train_sizes)
    np.testing.assert_allclose(mean, whole.weights.select(kept[0].layout).vector, rtol=0, atol=1e-6)


def test_normalization_persists_between_rounds(small_twin: Any, grouped: TrainableModel) -> None:
    """A second round by hand, from the kept normalization and the received rest."""
    one, two = (small_twin.run(FedBN(), grouped, rounds=rounds) for rounds in (1, 2))
    for id in range(3):
        device = two.device(id)
        own = device.state["own"]
        device.restore(one.device(id).state["own"])
        device.restore(one.weights)
        device.train()
        np.testing.assert_array_equal(device.parameters().select(own.layout).vector, own.vector)
        deployed = two.deployed(id)
        np.testing.assert_array_equal(deployed.select(own.layout).vector, own.vector)
        np.testing.assert_array_equal(deployed.select(two.weights.layout).vector, two.weights.vector)
    assert len({two.device(id).state["own"].vector.tobytes() for id in range(3)}) == 3


def test_unseen_device_trains_its_normalization_alone(small_twin: Any, grouped: TrainableModel) -> None:
    run = small_twin.run(FedBN(unseen_epochs=2), grouped, fleet=Fleet(unseen=1), rounds=1)
    deployed, initial = run.deployed(run.unseen), Runtime(grouped).initial
    np.testing.assert_array_equal(deployed.select(run.weights.layout).vector, run.weights.vector)
    for p in grouped.parameters:
        if p.group == "norm":
            assert not np.array_equal(deployed[p.name], initial[p.name]), p.name
