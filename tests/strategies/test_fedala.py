"""FedALA against plain numpy: the weights of a device's mixture follow the gradient of the loss at the mixture."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from orders import orders

from odt_sim import Fleet, TrainableModel
from odt_sim.strategies.two_models.fedala import FedALA

RATE, BATCH, SEED = 0.1, 16, 4  # as in the runs, see conftest
HEAD = slice(35, 53)


def sampled(twin: Any, device: int, round: int, sample: float) -> list[Any]:
    """Return the batches on which a device learns its mixture."""
    x, y = twin.part("train", device)
    count = max(1, int(sample * -(-len(x) // BATCH)))
    order = next(orders(SEED, device, round, len(x), "mixture"))[: count * BATCH]
    return [(x[rows], y[rows]) for rows in np.split(order, range(BATCH, len(order), BATCH))]


def mixed(w: Any, own: Any, shares: Any) -> Any:
    start = w.copy()
    start[HEAD] = own + shares * (w[HEAD] - own)
    return start


def learned(twin: Any, w: Any, own: Any, shares: Any, batches: Any, rate: float, passes: int) -> tuple[Any, int]:
    """Learn the shares, and return them with the number of passes."""
    losses: list[float] = []
    while len(losses) < passes and not (len(losses) > 10 and np.std(losses[-10:]) < 0.1):
        each = []
        for x, y in batches:
            start = mixed(w, own, shares)
            each.append(twin.at(start).losses(x, y).mean())
            shares = np.clip(shares - rate * twin.gradient(start, x, y)[HEAD] * (w[HEAD] - own), 0, 1)
        losses.append(float(np.mean(each)))
    return shares, len(losses)


@pytest.mark.parametrize("name", ["small_mlp", "termed"], ids=["on_examples", "on_embeddings"])
def test_agrees_with_numpy(small_twin: Any, name: str, request: pytest.FixtureRequest) -> None:
    rate, sample = 20.0, 0.5
    run = small_twin.run(FedALA(rate, sample), request.getfixturevalue(name), rounds=3)
    w, own, shares = small_twin.initial, [None] * 3, [np.ones(18)] * 3
    for round in (1, 2, 3):
        trained = []
        for device in range(3):
            start = w
            if round > 1:
                batches, passes = sampled(small_twin, device, round, sample), 100 if round == 2 else 1
                shares[device], done = learned(small_twin, w, own[device], shares[device], batches, rate, passes)
                assert done == (11 if round == 2 else 1)
                start = mixed(w, own[device], shares[device])
            trained.append(small_twin.descend(start, device, round))
            own[device] = trained[-1][HEAD]
        w = small_twin.mean(trained)
    assert_allclose(run.weights.vector, w, rtol=0, atol=1e-4)
    assert any(0 < share.min() < 1 for share in shares)
    for device in range(3):
        assert_allclose(run.device(device).state["shares"], shares[device], rtol=0, atol=1e-3)
        last, _ = learned(small_twin, w, own[device], shares[device], sampled(small_twin, device, 3, sample), rate, 1)
        assert_allclose(run.deployed(device).vector, mixed(w, own[device], last), rtol=0, atol=1e-4)


def test_unseen_device_gets_the_global_weights(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedALA(), termed, fleet=Fleet(unseen=1))
    np.testing.assert_array_equal(run.deployed(run.unseen).vector, run.weights.vector)
    assert {row["state_bytes"] for row in run.rows} == {0, 2 * 4 * 18}
