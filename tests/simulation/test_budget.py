"""A budget of training steps or megabytes ends a run, after the round that reaches it."""

import json

import pytest
from deaths import DeathError, DiesAfterRound

from odt_sim.errors import ConfigurationError
from odt_sim.settings import Budget
from odt_sim.simulation.run.spending import Spending
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedper import FedPer


@pytest.fixture(scope="module")
def whole(results, tmp_path_factory):
    """Return a run of 6 rounds without a budget, evaluated after each."""
    return results(FedPer(), tmp_path_factory.mktemp("whole"), rounds=6, evaluate_every=1)


def costs(rounds):
    """Return the training steps and the megabytes up to each round."""
    steps = [sum(row["train_calls"] for row in rounds[: n + 1]) for n in range(len(rounds))]
    traffic = [sum(row["bytes_down"] + row["bytes_up"] for row in rounds[: n + 1]) / 1e6 for n in range(len(rounds))]
    return steps, traffic


def test_run_ends_after_the_round_that_reaches_its_budget(whole, results, tmp_path):
    steps, traffic = costs(whole.rounds)
    budgets = {
        Budget(steps=steps[2]): "training steps",
        Budget(steps=steps[1] + 1): "training steps",
        Budget(megabytes=traffic[2]): "megabytes",
        Budget(steps=10**9, megabytes=traffic[2] - 1e-6): "megabytes",
    }
    for number, (budget, unit) in enumerate(budgets.items()):
        found = results(FedPer(), tmp_path / str(number), rounds=6, evaluate_every=1, budget=budget)
        assert found.rounds == whole.rounds[:3]
        assert found.summary["rounds"] == 3
        assert unit in found.summary["stopped"]


def test_reason_and_limit_are_recorded(whole, results, tmp_path):
    steps, _ = costs(whole.rounds)
    limit = steps[1] + 1
    found = results(FedPer(), tmp_path / "limited", rounds=6, evaluate_every=1, budget=Budget(steps=limit))
    assert found.summary["stopped"] == f"run.budget.steps: {steps[2]} of {limit} training steps"
    assert found.summary["settings"]["run.budget.steps"] == str(limit)
    assert "stopped" not in whole.summary
    assert not any(name.startswith("run.budget") for name in whole.summary["settings"])


def test_megabytes_have_significant_digits():
    assert Spending(Budget(megabytes=0.001), bytes=1_234).reason == "run.budget.megabytes: 0.00123 of 0.001 megabytes"


def test_budget_that_the_last_round_reaches_ends_nothing_early(whole, results, tmp_path):
    steps, _ = costs(whole.rounds)
    found = results(FedPer(), tmp_path, rounds=6, evaluate_every=1, budget=Budget(steps=steps[-1]))
    assert "stopped" not in found.summary
    assert found.devices == whole.devices


def test_last_round_is_evaluated_and_evaluations_are_spread_over_the_budget(results, tmp_path):
    found = results(FedAvg(), tmp_path / "spread", rounds=1000, evaluate_every=None, budget=Budget(steps=200))
    evaluated = [row["round"] for row in found.rounds if "accuracy" in row]
    assert evaluated[-1] == len(found.rounds) < 1000
    assert min(len(found.rounds), 8) <= len(evaluated) <= 10


@pytest.mark.parametrize("died", [1, 2])
def test_interrupted_run_ends_with_the_same_bits(died, whole, results, simulation, tmp_path):
    steps, _ = costs(whole.rounds)
    settings = {"rounds": 6, "evaluate_every": 1, "budget": Budget(steps=steps[2])}
    ended = results(FedPer(), tmp_path / "ended", **settings)
    with pytest.raises(DeathError):
        simulation(FedPer(), tmp_path / "halves", **settings).run(observers=[DiesAfterRound(died)])
    simulation(FedPer(), tmp_path / "halves", **settings).run(resume=True)
    type(whole).read(tmp_path / "halves").assert_same_bits(ended)


def test_complete_run_goes_on_with_a_larger_budget(whole, results, simulation, tmp_path):
    steps, _ = costs(whole.rounds)
    settings = {"rounds": 6, "evaluate_every": 1}
    results(FedPer(), tmp_path / "run", **settings, budget=Budget(steps=steps[2]))
    again = simulation(FedPer(), tmp_path / "run", **settings, budget=Budget(steps=steps[2])).run(resume=True)
    assert again.rounds == 3
    simulation(FedPer(), tmp_path / "run", **settings).run(resume=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["rounds"] == 6
    assert (tmp_path / "run" / "devices.jsonl").read_bytes() == whole.devices


@pytest.mark.parametrize("limits", [{"steps": 0}, {"steps": 1.5}, {"megabytes": 0}, {"megabytes": "10"}])
def test_budget_out_of_range_is_refused(limits):
    with pytest.raises(ConfigurationError, match=r"^run\.budget\.\w+: expected a"):
        Budget(**limits)
