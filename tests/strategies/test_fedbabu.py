"""FedBABU against plain numpy: the body under a fixed head, then fine-tuning of all layers or the head."""

from typing import Any

import numpy as np
import pytest

from odt_sim.strategies.shared_parts.fedbabu import FedBABU

RATE, TUNING = 0.1, 3


@pytest.mark.parametrize("fine_tune", ["all", "head"])
def test_agrees_with_numpy(small_twin: Any, fine_tune: str) -> None:
    twin, head = small_twin, small_twin.model.head
    body = slice(0, head.start)
    run = small_twin.run(FedBABU(TUNING, fine_tune))
    w = twin.initial
    for round in range(1, run.rounds + 1):
        models = [w.copy() for _ in range(3)]
        for device, own in enumerate(models):
            for x, y in twin.batches(device, round):
                own[body] -= RATE * twin.gradient(own, x, y)[body]
        w = twin.mean(models)
    np.testing.assert_array_equal(w[head], twin.initial[head])
    np.testing.assert_allclose(run.weights.vector, w[body], rtol=0, atol=1e-5)
    models = [w.copy() for _ in range(3)]
    for device, own in enumerate(models):
        for x, y in twin.batches(device, run.rounds, range(TUNING)):
            part = head if fine_tune == "head" else slice(None)
            own[part] -= RATE * twin.gradient(own, x, y)[part]
        np.testing.assert_allclose(run.deployed(device).vector, own, rtol=0, atol=1e-5)
        assert run.device(device).state == {}
    twin.assert_rows(run.rows, models)
