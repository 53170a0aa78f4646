from dataclasses import replace

import pytest
from written_runs import complete_run, round_record

from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.equal_budgets import equal_budgets
from odt_sim.report.sections import budgets_table
from odt_sim.report.selection import Selection

MB = 1_000_000


def row(strategy, scores, *, steps=10, megabytes=2.0, seed=0):
    """Return a configuration with a score after each round; None stands for a round without evaluation."""
    costs = {"train_calls": steps, "bytes_down": int(MB * megabytes / 2), "bytes_up": int(MB * megabytes / 2)}
    rounds = [
        round_record(number, **costs, **({} if score is None else {"accuracy": score}))
        for number, score in enumerate(scores, 1)
    ]
    run = complete_run(strategy, {"strategy": strategy, "seed": seed, "task": "classification"})
    return Configuration(strategy, (replace(run, rounds=tuple(rounds)),), {}, Selection(strategy, 1))


def at(*rows):
    found = equal_budgets(Comparison("accuracy", None, rows, (), ()))
    return {each.title: {label: spread and spread.mean for label, spread in each.values.items()} for each in found}


def test_budget_is_what_all_have_spent():
    fast = row("fast", [0.1, 0.2, 0.3, 0.4], steps=10, megabytes=1)
    slow = row("slow", [0.5, 0.6], steps=30, megabytes=4)
    assert at(fast, slow) == {
        "at 2\nrounds": {"fast": 0.2, "slow": 0.6},
        "at 40\ntraining steps": {"fast": 0.4, "slow": 0.5},
        "at 4\nMB": {"fast": 0.4, "slow": 0.5},
    }


def test_configuration_that_sends_nothing_is_within_any_budget():
    found = at(row("local", [0.3, 0.4], megabytes=0), row("fedavg", [0.5, 0.6]))
    assert found["at 4\nMB"] == {"local": 0.4, "fedavg": 0.6}


def test_round_without_evaluation_counts_the_last_one_before():
    found = at(row("a", [0.1, None, 0.3]), row("b", [None, 0.6]))
    assert found["at 2\nrounds"] == {"a": 0.1, "b": 0.6}
    assert at(row("a", [0.1, 0.2]), row("b", [None, None, 0.9], steps=1))["at 3\ntraining steps"] == {
        "a": None,
        "b": 0.9,
    }


def test_unknown_steps_have_no_budget():
    assert list(at(row("a", [0.1], steps=None), row("b", [0.2]))) == ["at 1\nrounds", "at 2\nMB"]


def test_single_configuration_has_no_table():
    assert at(row("a", [0.1])) == {}
    assert budgets_table(Comparison("accuracy", None, (row("a", [0.1]),), (), ())).rows == []


def test_best_value_is_marked():
    table = budgets_table(Comparison("accuracy", None, (row("a", [0.1, 0.4]), row("b", [0.3])), (), ()))
    assert table.headings == ["strategy", "at 1\nrounds, %", "at 10\ntraining steps, %", "at 2\nMB, %"]
    assert [[(cell.text, cell.best) for cell in each.cells] for each in table.rows] == [
        [("10.0", False)] * 3,
        [("30.0", True)] * 3,
    ]


@pytest.mark.parametrize(("scores", "best"), [((0.3, 0.3, 0.1, 0.2), {"0", "1"}), ((0.3, 0.3, 0.1), set())])
def test_shared_best_value_is_marked_as_in_the_other_tables(scores, best):
    rows = [row(str(number), [score]) for number, score in enumerate(scores)]
    found = equal_budgets(Comparison("accuracy", None, tuple(rows), (), ()))
    assert {each.best for each in found} == {frozenset(best)}


@pytest.mark.parametrize("seeds", [2, 3])
def test_mean_is_over_seeds(seeds):
    runs = [row("a", [0.1 * seed], seed=seed).runs[0] for seed in range(1, seeds + 1)]
    several = replace(row("a", [0.1]), runs=tuple(runs))
    assert at(several, row("b", [0.2]))["at 1\nrounds"]["a"] == pytest.approx(0.1 * (seeds + 1) / 2)
