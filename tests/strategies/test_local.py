"""Local training against plain numpy, with persistent optimizer slots."""

from typing import Any

import numpy as np
import pytest

from odt_sim import Fleet
from odt_sim.strategies.averaging.local import Local


def test_agrees_with_numpy(twin: Any) -> None:
    run = twin.run(Local())
    models = [twin.model.copy() for _ in range(3)]
    for round in range(1, run.rounds + 1):
        for device, own in enumerate(models):
            twin.train(own, device, round)
    for device, own in enumerate(models):
        kernel, bias = run.deployed(device).tensors()
        np.testing.assert_allclose(kernel, own.kernel, rtol=0, atol=1e-5)
        np.testing.assert_allclose(bias, own.bias, rtol=0, atol=1e-5)
    twin.assert_rows(run.rows, models)


def test_nothing_travels(twin: Any) -> None:
    run = twin.run(Local(), rounds=1)
    assert run.broadcast == {}
    record = (run.directory / "rounds.jsonl").read_text()
    assert '"bytes_up": 0' in record
    assert '"bytes_down": 0' in record


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_optimizer_slots_persist(small_twin: Any, request: pytest.FixtureRequest, name: str) -> None:
    """Each device by hand, with weights and slots passed from round to round."""
    model = request.getfixturevalue(name)
    run = small_twin.run(Local(), model)
    for id in range(3):
        weights, slots = None, []
        for round in range(1, run.rounds + 1):
            device = run.device(id)
            device.round = round
            if weights:
                device.restore(weights)
                device.restore_optimizer_state(slots)
            device.train()
            weights, slots = device.parameters(), device.optimizer_state()
        np.testing.assert_array_equal(run.deployed(id).vector, weights.vector)


def test_every_device_trains_in_every_round(twin: Any) -> None:
    """Including unseen devices, whatever the cohort."""
    whole = twin.run(Local())
    run = twin.run(Local(), fleet=Fleet(cohort=1, unseen=2))
    assert sum(not row["seen"] for row in run.rows) == 2
    for device in range(3):
        np.testing.assert_array_equal(run.deployed(device).vector, whole.deployed(device).vector)
    assert all(row["local_accuracy"] == row["accuracy"] for row in run.rows)
