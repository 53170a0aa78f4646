"""Evaluation of a part of the fleet: the same devices for every strategy, with the same results."""

import json

import pytest
from deaths import DeathError, DiesAfterRound

from odt_sim import Fleet
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.shared_parts.fedper import FedPer

SAMPLED = Fleet(cohort=4, unseen=2, evaluated=3)
ALL = Fleet(cohort=4, unseen=2)


def devices(found):
    return {row["device"]: row for row in map(json.loads, found.devices.splitlines())}


@pytest.fixture
def sampled(results, tmp_path):
    """Run FedPer over 7 devices, of which 3 are evaluated."""
    return results(FedPer(), tmp_path / "sampled", fleet=SAMPLED)


def test_sampled_devices_have_the_figures_of_a_full_evaluation(sampled, results, tmp_path):
    everyone = results(FedPer(), tmp_path / "run", fleet=ALL)
    assert sampled.summary["reported_round"] == everyone.summary["reported_round"]
    found, among_all = devices(sampled), devices(everyone)
    assert found == {device: among_all[device] for device in found}
    assert sorted(row["seen"] for row in found.values()) == [False, True, True]
    assert [row["train_loss"] for row in sampled.rounds] == [row["train_loss"] for row in everyone.rounds]


def test_records_count_the_evaluated_devices(sampled):
    summary = sampled.summary
    assert (summary["devices"], summary["unseen"], summary["evaluated"]) == (7, 2, 3)
    assert summary["settings"]["fleet.evaluated"] == "3"
    assert summary["metrics"]["accuracy"]["devices"] == 2
    assert summary["examples"] == sum(row["examples"] for row in devices(sampled).values())
    assert [row.get("validation_devices") for row in sampled.rounds] == [None, 2, 2]


@pytest.mark.parametrize("strategy", [FedAvg(), Local()], ids=lambda s: s.name)
def test_every_strategy_is_evaluated_on_the_same_devices(sampled, results, tmp_path, strategy):
    found = results(strategy, tmp_path / "run", fleet=SAMPLED)
    rows = [{key: row[key] for key in ("device", "seen", "examples")} for row in devices(found).values()]
    assert rows == [{key: row[key] for key in ("device", "seen", "examples")} for row in devices(sampled).values()]


def test_resumed_run_evaluates_the_same_devices(sampled, simulation, results, tmp_path):
    with pytest.raises(DeathError):
        simulation(FedPer(), tmp_path / "run", fleet=SAMPLED).run(observers=[DiesAfterRound(1)])
    simulation(FedPer(), tmp_path / "run", fleet=SAMPLED).run(resume=True)
    type(sampled).read(tmp_path / "run").assert_same_bits(sampled)
