"""The command `odt-sim benchmark`: tasks, mistakes, and a small benchmark that is killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from command_process import COMMAND
from omegaconf import OmegaConf

from odt_sim.benchmark import processes
from odt_sim.benchmark.cells import Cell, Outcome, ended, loaded_cell, write_outcome
from odt_sim.benchmark.page import with_results
from odt_sim.benchmark.processes import run_cells
from odt_sim.benchmark.results import read_results
from odt_sim.cli.commands.benchmark import TASKS, options
from odt_sim.cli.commands.benchmark_worker import refusal
from odt_sim.cli.hydra.build import check, federated
from odt_sim.cli.hydra.overrides import composed
from odt_sim.cli.main import main
from odt_sim.persistence.run_folder import INITIAL_MODEL, RunFolder
from odt_sim.tuning.plan import Plan
from odt_sim.tuning.winners import Winner

OWN_TASK = """# @package _global_
# Digits of a few classes on each of six devices.
defaults:
  - override /partition: pathological
  - override /model: digits_mlp
fleet: {devices: 6, unseen: 2}
run: {rounds: 2}
"""
SMALL = ["task=digits,mine", "strategy=fedavg,fedbn,ditto", "budget=1", "seed=0,1", "jobs=2", "output=out"]
TINY = ["benchmark", *SMALL, "config_dir=my", "markdown=page.md", "run.rounds=2", "digits.fleet.unseen=2"]
WITH_PATH = ("femnist", "school", "shakespeare", "uci_har")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a task of the user."""
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "my" / TASKS / "mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(OWN_TASK)
    return tmp_path


def cell(folder, **changes):
    given = {
        "strategies": ["fedavg"],
        "budget": 5,
        "seeds": [0, 1],
        "tuning_seed": 9,
        "overrides": ["a=1"],
        "rate": 0.1,
    }
    plan = Plan(**{**given, "folder": folder, **changes})
    return Cell("digits", "fedavg", plan)


@pytest.mark.parametrize("task", options(TASKS))
def test_task_is_a_valid_configuration_that_lacks_its_data_at_most(task):
    config = composed([f"+{TASKS}={task}"])
    assert OmegaConf.missing_keys(config) == ({"data.path"} if task in WITH_PATH else set())
    check(composed([f"+{TASKS}={task}", *(["data.path=given"] if task in WITH_PATH else [])]))


def test_tasks_without_data_from_elsewhere_have_enough_users():
    for task in ("digits", "synthetic"):
        config = composed([f"+{TASKS}={task}"])
        assert federated(config).devices - config.fleet.unseen >= 16


def test_cell_is_sent_as_a_line_and_read_again(tmp_path):
    one = cell(tmp_path)
    assert loaded_cell(one.dumps()) == one
    assert "\n" not in one.dumps()


def test_cell_with_the_same_budget_and_seeds_need_not_run_again(tmp_path):
    found = Outcome(status="ran", winner=Winner("fedavg", 5, 0, 3, 0.9, ["b=2"]), budget=5, seeds=[0, 1], seconds=2.5)
    write_outcome(cell(tmp_path), found)
    assert ended(cell(tmp_path)) == found
    assert ended(cell(tmp_path, budget=6)) is None
    assert ended(cell(tmp_path, seeds=[0, 1, 2])) is None


def test_only_a_lasting_error_before_the_first_round_is_a_refusal(tmp_path):
    for name, files in (("refused", []), ("diverged", [INITIAL_MODEL])):
        (tmp_path / name).mkdir()
        RunFolder(tmp_path / name).write_failure(f"{name} for a reason", [])
        for file in files:
            (tmp_path / name / file).touch()
    assert refusal(tmp_path / "refused") == "refused for a reason"
    assert refusal(tmp_path / "diverged") == ""
    RunFolder(tmp_path / "refused").write_failure("the export process was killed", [], transient=True)
    assert refusal(tmp_path / "refused") == ""
    assert refusal(tmp_path / "ended without a record, such as on a full disk") == ""


def test_results_replace_those_of_a_page():
    page = "# Benchmark\n\nHow to read it.\n"
    first = with_results(page, "## Results\n\nold\n")
    assert first == f"{page}\n## Results\n\nold\n"
    assert with_results(first, "## Results\n\nnew\n") == f"{page}\n## Results\n\nnew\n"
    assert with_results("", "## Results\n\nnew\n") == "## Results\n\nnew\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["task=mnist"], "task: expected some of digits, femnist, "),
        (["strategy=fedavg,no"], "strategy: expected some of "),
        (["fedavg"], "fedavg: expected KEY=VALUE; odt-sim benchmark --help explains the command"),
        (["tasks=digits"], "tasks: unknown argument of odt-sim benchmark; did you mean task?"),
        (["strategies=fedavg"], "strategies: unknown argument of odt-sim benchmark; did you mean strategy?"),
        (["task=digits", "budget=0"], "benchmark.budget: expected a whole number of at least 1, found 0"),
        (
            ["task=digits", "seed=0,5", "tuning_seed=5"],
            "tuning_seed: expected a seed that no compared run uses, found 5",
        ),
        (["task=digits", "strategy=fedavg", "run.round=3"], "run.round: "),
        (["task=digits", "strategy=fedavg", "digits.run.round=3"], "run.round: "),
        (
            ["config_dir=nodir"],
            "config_dir: expected a folder of options, found no folder nodir; give its path",
        ),
        (["task=school", "strategy=fedavg"], "task: no task has its data; set the path of one, such as "),
        (["task=digits", "fleet.devices=4"], "fleet.unseen: expected 0 to 3, found 4"),
        (["task=school", "school.data.path=none.npz"], "data none.npz: "),
        (["task=digits", "digits.data=arm", "digits.partition=iid"], "data arm seed=0: "),
    ],
)
def test_mistake_is_reported_before_anything_runs(given, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", *given]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {message}"), error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["config_dir=my", "hydra.searchpath=[file://my]"])
def test_own_tasks_and_strategies_are_found(given, folder, capsys):
    (folder / "my" / "strategy").mkdir()
    (folder / "my" / "strategy" / "own.yaml").write_text("_target_: odt_sim.strategies.FedAvg\n")
    assert main(["benchmark", "task=mine", "strategy=own", given, "run.round=3"]) == 1
    assert "error: run.round: unknown setting" in capsys.readouterr().err  # which is checked once both are found


def test_task_without_its_data_is_skipped_with_what_to_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["benchmark", "task=femnist", "strategy=fedavg"])
    assert (
        capsys.readouterr().err.splitlines()[0] == "skipped femnist: data.path is not set; pass femnist.data.path=..."
    )


def test_folder_with_other_settings_is_refused(folder, capsys, digits_mlp):
    (folder / "out" / "digits").mkdir(parents=True)
    old = {"overrides": ["run.rounds=9"], "tuning_seed": 1000, "rate": 0.1}
    (folder / "out" / "digits" / "task.json").write_text(json.dumps(old))
    assert main([*TINY, "task=digits"]) == 1
    assert "out/digits: contains digits with other settings, overrides ['run.rounds=9']" in capsys.readouterr().err


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_cell_whose_process_is_interrupted_has_no_outcome(ended_by, tmp_path, monkeypatch):
    default = f"signal.signal({ended_by:d}, signal.SIG_DFL)"  # shells start background commands with SIGINT ignored
    dies = f"import os, signal; {default}; input(); os.kill(os.getpid(), {ended_by:d})"
    monkeypatch.setattr(processes, "WORKER", (sys.executable, "-S", "-c", dies))
    with pytest.raises(KeyboardInterrupt):
        list(run_cells([cell(tmp_path)], 1))
    assert ended(cell(tmp_path)) is None


def test_cell_whose_process_was_killed_fails_and_runs_again(tmp_path, monkeypatch):
    dies = f"import os; input(); os.kill(os.getpid(), {signal.SIGKILL:d})"
    monkeypatch.setattr(processes, "WORKER", (sys.executable, "-S", "-c", dies))
    [(_, outcome)] = run_cells([cell(tmp_path)], 1)
    assert (outcome.status, outcome.reason) == ("failed", "its process ended with exit code -9")
    assert ended(cell(tmp_path)) is None


@pytest.mark.slow
def test_killed_benchmark_resumes_and_writes_ranks_and_page(folder, capsys, digits_mlp):
    child = subprocess.Popen([*COMMAND, *TINY], start_new_session=True)
    out, started = folder / "out", time.monotonic()
    try:
        while not list(out.glob("*/cells/*.json")):
            assert child.poll() is None
            assert time.monotonic() - started < 200
            time.sleep(0.05)
    finally:
        os.kill(child.pid, signal.SIGKILL)  # its processes end when it ends
        child.wait(timeout=60)
    capsys.readouterr()
    assert main(TINY) == 0
    printed = capsys.readouterr()
    assert "already done: " in printed.err
    assert "mine fedbn: not applicable, strategy fedbn: " in printed.err
    assert "report: out/report.html, out/results.md, page.md" in printed.out
    results = read_results(out, ["digits", "mine"], ["fedavg", "fedbn", "ditto"])
    assert sorted(results.ranked_strategies) == ["ditto", "fedavg"]
    assert results.ranks().shape == (2, 2)
    for task in results.tasks:
        assert [outcome.status for outcome in task.outcomes.values()] == ["ran", "refused", "ran"]
        for row in task.rows.values():
            assert [run.complete.seed for run in row.runs] == [0, 1]
            means = [run.complete.metrics["accuracy"]["mean"] for run in row.runs]
            assert task.value(row.strategy, "mean") == pytest.approx(np.mean(means))
        searches = [json.loads(path.read_text()) for path in (out / task.name / "search").glob("*/*/summary.json")]
        assert {each["seed"] for each in searches} == {1000}
    page = (out / "report.html").read_text()
    assert (folder / "page.md").read_text() == (out / "results.md").read_text()
    assert all(
        text in page
        for text in ("Critical-difference diagram", "fedbn on mine: ", "odt-sim benchmark task=digits,mine")
    )
    assert "http" not in page
    assert (out / "figures" / "ranks.png").exists()
