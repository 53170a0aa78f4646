"""Runs whose examples arrive over time."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from odt_sim import Simulation
from odt_sim.data import federate, iid
from odt_sim.data.devices.arrival import in_order
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local


@pytest.fixture
def arriving(clouds):
    """Return the clouds over 5 devices, in three periods of two rounds."""
    return in_order(federate(clouds, iid, 5, 0), 0, periods=3, rounds=2)


def test_a_run_trains_on_new_examples_and_records_each_period(results, arriving, momentum, tmp_path):
    found = results(Local(), tmp_path / "run", data=arriving, rounds=6, evaluate_every=None, fleet=None)
    evaluated = {row["round"]: [name for name in row if name.startswith("period_")] for row in found.rounds}
    columns = [f"period_{period}_accuracy" for period in (1, 2, 3)]
    assert evaluated == {1: [], 2: columns[:1], 3: [], 4: columns[:2], 5: [], 6: columns}
    assert found.summary["reported_round"] == 6
    assert not any(name.startswith("validation_") for row in found.rounds for name in row)
    assert found.summary["over_time"]["now"] == found.rounds[5]["period_3_accuracy"]
    assert set(found.summary["over_time"]) == {"now", "average", "plasticity", "forgetting"}
    steps = [row["train_calls"] for row in found.rounds]
    sizes = [[len(arriving.arrived(device, round)[0]) for device in range(arriving.devices)] for round in (1, 3, 5)]
    assert steps[::2] == [sum(-(-size // momentum.batch_size) for size in own) for own in sizes]


def test_a_metric_may_be_undefined_on_a_period(results, arriving, tmp_path):
    """The examples of one class have no AUC."""
    data = replace(arriving, y=np.zeros_like(arriving.y))
    settings = {"rounds": 6, "evaluate_every": None, "fleet": None, "metric": "auc"}
    found = results(FedAvg(), tmp_path / "run", data=data, **settings)
    assert found.rounds[3]["period_2_auc"] is found.rounds[3]["auc"] is None
    assert found.rounds[3]["accuracy"] > 0.5
    assert found.summary["over_time"] == {}


@pytest.mark.parametrize(("rounds", "warned"), [(4, True), (5, False)])
def test_run_warns_of_periods_that_it_does_not_reach(arriving, momentum, tmp_path, rounds, warned):
    made = Simulation(momentum, arriving, FedAvg(), rounds=rounds, directory=tmp_path)
    message = "arrival: in 4 rounds, a run reaches 2 of 3 periods, .*; set run.rounds to 6"
    with pytest.warns(UserWarning, match=message) if warned else nullcontext():
        made.run()
