"""Results of a benchmark from made-up runs: ranks, exclusions, tables and pages."""

from dataclasses import replace

import numpy as np
import pytest
from written_runs import complete_run, write_run

from odt_sim.benchmark.cells import FOLDER, Outcome, write_outcome
from odt_sim.benchmark.cells import Cell as Work
from odt_sim.benchmark.page import diagram, page_html, results_markdown
from odt_sim.benchmark.results import Results, TaskResult, read_results, write_command
from odt_sim.benchmark.sections import BEST, RANKS, SERVED, STEPS, facts, finding, headline, sections
from odt_sim.errors import CheckpointError
from odt_sim.report.comparison import compare_runs
from odt_sim.tuning.plan import Plan
from odt_sim.tuning.winners import Winner

TASKS = {"pictures": "classification", "scores": "regression"}
STRATEGIES = ["fedavg", "fedper", "local", "ditto", "fedbn"]
LEFT_OUT = {("scores", "fedbn"): "refused", ("scores", "ditto"): "failed"}
SEEDS = [0, 1, 2]


def write_cell(root, task, strategy):
    plan = Plan(
        strategies=STRATEGIES,
        budget=4,
        seeds=SEEDS,
        tuning_seed=9,
        overrides=[],
        rate=0.1,
        folder=root / task,
    )
    status = LEFT_OUT.get((task, strategy), "ran")
    won = Winner(strategy, 4, 1, 2, 0.9, ["train.learning_rate=0.1", "strategy.mu=2"])
    reason = "" if status == "ran" else f"{strategy} says why"
    outcome = Outcome(status=status, reason=reason, winner=None if reason else won, budget=4, seeds=SEEDS, seconds=60.0)
    write_outcome(Work(task, strategy, plan), outcome)
    for seed in SEEDS if status == "ran" else ():
        overrides = ["train.learning_rate=0.1"]
        folder = plan.run_folder(strategy, 2) / str(seed)
        write_run(
            folder, strategy, seed, task=TASKS[task], overrides=overrides, rounds=2, settings={"strategy": strategy}
        )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("benchmark")
    for task in TASKS:
        for strategy in STRATEGIES:
            write_cell(root, task, strategy)
    write_command(root, "odt-sim benchmark", 2)
    return root


@pytest.fixture(scope="module")
def results(root):
    return read_results(root, [*TASKS], STRATEGIES)


def table(results, title):
    """Return the texts of a table's cells by the name of the row."""
    section = next(section for section in sections(results) if section.title == title)
    return {row.name: [cell.text for cell in row.cells] for row in section.rows}


def test_refused_strategy_is_not_ranked_and_failed_one_is_last(results):
    assert results.ranked_strategies == ["fedper", "fedavg", "ditto", "local"]
    pictures, scores = results.ranks().tolist()
    assert scores == [1.0, 2.0, 4.0, 3.0]
    assert sorted(pictures) == [1.0, 2.0, 3.0, 4.0]


def test_rank_is_by_the_mean_over_seeds(results):
    pictures = results.tasks[0]
    means = {
        name: np.mean([run.complete.metrics["accuracy"]["mean"] for run in row.runs])
        for name, row in pictures.rows.items()
    }
    assert {name: pictures.value(name, "mean") for name in means} == pytest.approx(means)
    assert pictures.best("mean") == max(means, key=means.get)
    assert results.tasks[1].best("mean") == "fedper"  # less error


def test_single_seeds_are_ranked_alone(results):
    assert results.seed_ranks().shape == (len(SEEDS), 4)
    assert np.allclose(results.seed_ranks().sum(axis=1), 1 + 2 + 3 + 4)


def test_ranks_of_two_tasks_have_the_test_of_two_tasks(results):
    assert results.friedman.chi_square <= 2 * 3
    assert results.critical_difference == pytest.approx(2.569 * (4 * 5 / 12) ** 0.5, abs=0.01)
    assert "differ by more than 3.3" in finding(results)


def test_best_is_level_with_those_that_pairs_do_not_find_worse(results):
    pictures = results.tasks[0]
    best = pictures.best("mean")
    level = pictures.level_with(best)
    assert level[0] == best
    assert "local" not in level  # 20 points worse on each of three seeds


def test_ranks_table_has_those_that_are_not_ranked_at_its_end(results):
    rows = table(results, RANKS)
    assert [*rows] == [*results.ranked_strategies, "fedbn"]
    assert rows["fedbn"][:2] == ["–", "–"]
    assert rows["fedavg"][2:4] == ["", ""]
    assert rows["fedper"][-2] == "1.00"  # bytes: those of all are equal


def test_figures_say_why_there_is_none(results):
    rows = table(results, SERVED)
    assert rows["ditto"][1] == "failed"
    assert rows["fedbn"][1] == "–"
    assert table(results, BEST)["scores"][0] == "fedper"


def test_steps_of_a_deployment_count(tmp_path):
    steps = {"fedavg": (100, 0), "fedavg_finetune": (100, 60)}
    blank = {"metrics": {"accuracy": {"mean": 0.5, "weighted_mean": 0.5}}}
    runs = [
        complete_run(name, {**blank, "strategy": name, "train_calls": rounds, "deploy_train_calls": deployment})
        for name, (rounds, deployment) in steps.items()
    ]
    outcomes = {name: Outcome(status="ran", budget=1, seeds=[0]) for name in steps}
    task = TaskResult("pictures", outcomes, compare_runs(runs))
    found = Results(tmp_path, "odt-sim benchmark", 1, [*steps], [task])
    assert found.relative("fedavg_finetune", "train_calls") == pytest.approx(1.6)
    assert task.cheapest("train_calls", [*steps]) == "fedavg"
    assert table(found, STEPS) == {"fedavg": ["100"], "fedavg_finetune": ["160"]}


def test_strategies_that_are_level_share_the_best_rank(tmp_path):
    blank = {"metrics": {"accuracy": {"mean": 0.5, "weighted_mean": 0.5}}}
    runs = [complete_run(name, {**blank, "strategy": name}) for name in ("fedavg", "local")]
    outcomes = {name: Outcome(status="ran", budget=1, seeds=[0]) for name in ("fedavg", "local")}
    found = Results(tmp_path, "odt-sim benchmark", 1, [*outcomes], [TaskResult("t", outcomes, compare_runs(runs))])
    assert finding(found).startswith("fedavg and local share the best average rank, 1.5 of 2.")
    text = results_markdown(found)
    assert "| fedavg | **1.5** |" in text
    assert "| local | **1.5** |" in text


def test_page_and_markdown_have_all_that_was_found(results):
    page, text = page_html(results, diagram(results)), results_markdown(results)
    for expected in (
        "Critical-difference diagram",
        "learning_rate=0.1",
        "1 of 4 trials failed",
        "fedbn on scores: fedbn says why",
    ):
        assert expected in page, expected
    assert "http" not in page
    assert text.startswith("## Results\n\n5 strategies on 2 tasks. fedper has the best average rank")
    assert "- fedbn on scores: fedbn says why" in text
    assert "| fedbn, 1 of 2 tasks | – |" in text


def test_one_task_has_no_critical_difference(root):
    alone = read_results(root, ["pictures"], STRATEGIES)
    assert alone.critical_difference is None
    assert diagram(alone) == []
    assert "Ranks on a single task cannot be tested." in finding(alone)


def test_strategy_that_alone_runs_on_all_tasks_has_no_rank(root):
    found = read_results(root, [*TASKS], ["fedavg", "fedbn"])
    assert finding(found) == "fedavg is the only strategy that runs on all tasks."


def test_missing_cell_is_reported(root):
    with pytest.raises(CheckpointError, match=f"pictures/{FOLDER}/apfl.json: does not exist; run the benchmark again"):
        read_results(root, ["pictures"], [*STRATEGIES, "apfl"])


def test_time_is_that_of_all_cells(results):
    assert results.seconds == 60.0 * len(TASKS) * len(STRATEGIES)
    assert facts(results)["time"] == "5 min in 2 processes"


def test_counts_of_one_are_singular_and_short_times_in_seconds(root):
    alone = replace(read_results(root, ["pictures"], ["fedavg"]), jobs=1)
    assert headline(alone) == "1 strategy on 1 task"
    assert finding(alone) == "There is nothing to compare."
    assert facts(alone)["time"] == "60 s in 1 process"
    assert list(table(alone, RANKS)) == ["fedavg"]


def test_finding_of_two_strategies_speaks_of_the_other_one(root):
    found = read_results(root, [*TASKS], ["fedavg", "fedper"])
    assert finding(found).endswith(" (Nemenyi): the other strategy is indistinguishable from the best.")


def test_a_strategy_does_not_win_by_the_devices_that_it_loses(results):
    pictures = results.tasks[0]
    best = pictures.best("mean")
    row = pictures.rows[best]
    figures = {name: {**figure, "devices": 15} for name, figure in row.runs[0].complete.metrics.items()}
    run = replace(row.runs[0], summary=replace(row.runs[0].summary, metrics=figures))
    comparison = replace(
        pictures.comparison,
        rows=[replace(each, runs=(run, *row.runs[1:])) if each is row else each for each in pictures.comparison.rows],
    )
    fewer = replace(results, tasks=[replace(pictures, comparison=comparison)])
    assert fewer.tasks[0].best("mean") != best
    assert fewer.ranked_strategies[-1] == best
