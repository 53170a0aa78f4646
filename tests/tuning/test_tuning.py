"""Tuning: equal searches, winners by validation, and a comparison on other seeds."""

import io
import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from command_process import COMMAND, kill_once
from rich.console import Console

from odt_sim import strategies
from odt_sim.cli.commands.tune import (
    cleared_rate,
    fixed_overrides,
    lacked_settings,
    resumable,
)
from odt_sim.cli.hydra.build import model_spec
from odt_sim.cli.hydra.overrides import composed
from odt_sim.cli.main import main
from odt_sim.tuning.plan import Plan, folder_of, is_fixed, ranges_of
from odt_sim.tuning.space import parsed_space
from odt_sim.tuning.tables import winners_section, winners_table
from odt_sim.tuning.winners import Winner, choice_of, winner

FEW = ["model=digits_mlp", "backend=serial", "run.rounds=1", "fleet.devices=4", "fleet.unseen=1"]
TINY = ["tune", "strategy=fedavg,fedprox", "budget=2", "seed=0", "jobs=2", "output=out", *FEW]


def plan(*overrides, **changes):
    given = {"strategies": ["fedavg", "fedprox"], "budget": 5, "seeds": [0, 1], "tuning_seed": 9, "rate": 0.3}
    return Plan(**{**given, "overrides": overrides, "folder": Path("out"), **changes})


def test_every_strategy_is_searched_with_the_same_budget_and_seed():
    searches = {name: plan("run.rounds=7").search(name) for name in ("fedavg", "fedprox")}
    shared = {
        "train.learning_rate=tag(log,interval(0.01,1))",
        "train.epochs=int(interval(1,5))",
        "run.rounds=7",
        "seed=9",
    }
    for name, arguments in searches.items():
        assert shared | {f"strategy={name}", "hydra.sweeper.n_trials=5"} <= set(arguments)
    assert set(searches["fedprox"]) - set(searches["fedavg"]) == {
        "strategy=fedprox",
        "strategy.mu=tag(log,interval(0.001,10))",
    }


def test_overrides_replace_what_is_searched():
    arguments = plan("train.learning_rate=0.5", "train.epochs=1,2").search("fedavg")
    assert [each for each in arguments if each.startswith("train.")] == ["train.learning_rate=0.5", "train.epochs=1,2"]


def test_record_of_what_is_searched_has_the_overrides():
    tuned = plan("train.learning_rate=tag(log,interval(0.1,1))", "train.epochs=2", "hydra.sweeper.n_jobs=2")
    assert tuned.searched("fedavg") == {"train.learning_rate": "tag(log,interval(0.1,1))"}


@pytest.mark.parametrize(
    ("override", "fixed"),
    [
        ("data.path='a, b.csv'", True),
        ('data.path="a,b.csv"', True),
        ("data.features=[a,b]", True),
        ("train.epochs=range(3)", False),
        ("model.units=[8],[8,8]", False),
        ("model.name=unclosed'", True),
    ],
)
def test_quotes_and_brackets_make_one_value(override, fixed):
    assert is_fixed(override) == fixed


def test_setting_of_one_strategy_does_not_apply_to_those_that_lack_it(tmp_path):
    (tmp_path / "strategy").mkdir()
    (tmp_path / "strategy" / "mine.yaml").write_text("_target_: odt_sim.strategies.averaging.fedprox.FedProx\n")
    overrides = [f"hydra.searchpath=['file://{tmp_path}']", "strategy.mu=interval(0,1)", "strategy.weighting=uniform"]
    strategies = ["fedavg", "mine", "local"]
    lacked = lacked_settings(strategies, overrides)
    assert lacked == {"fedavg": overrides[1:2], "mine": [], "local": overrides[1:]}
    tuned = plan(*overrides, strategies=strategies, lacked=lacked)
    assert [key for key in tuned.searched("mine") if key not in tuned.searched("local")] == ["strategy.mu"]
    for name, given in (("fedavg", [overrides[2]]), ("mine", overrides[1:]), ("local", [])):
        assert [each for each in tuned.search(name) if each.startswith("strategy.")] == given
    assert "strategy.weighting=uniform" in tuned.report("fedavg", [])
    assert "strategy.weighting=uniform" not in tuned.report("local", [])


def test_report_runs_the_winner_on_its_own_seeds():
    searched = plan("train.epochs=1,2", "run.rounds=7", "hydra.sweeper.pruner=median")
    settings = ["train.learning_rate=0.1", "train.epochs=2"]
    assert searched.report("fedavg", settings) == ["strategy=fedavg", *settings, "run.rounds=7", "seed=0,1"]


def test_key_may_have_a_plus_or_two():
    searched = plan("++strategy.mu=interval(0,1)", "+user.share=0.2,0.3", "++train.epochs=2", strategies=["fedprox"])
    assert [*searched.searched("fedprox")] == ["train.learning_rate", "strategy.mu", "user.share"]
    mine = [each for each in searched.search("fedprox") if "train.epochs" in each or "strategy.mu" in each]
    assert mine == ["++strategy.mu=interval(0,1)", "++train.epochs=2"]
    settings = ["train.learning_rate=0.1", "strategy.mu=0.5", "user.share=0.2"]
    drawn = ["train.learning_rate=0.1", "++strategy.mu=0.5", "+user.share=0.2"]
    assert searched.report("fedprox", settings) == ["strategy=fedprox", *drawn, "++train.epochs=2", "seed=0,1"]


def test_folder_belongs_to_what_decides_the_trials():
    assert folder_of(["a=1", "b=2", "backend=ray"], 9) == folder_of(["b=2", "a=1", "backend=serial"], 9)
    assert folder_of(["a=1"], 9) != folder_of(["a=1"], 8)


@pytest.mark.parametrize(
    "strategy", [getattr(strategies, name).__module__.rpartition(".")[2] for name in strategies.__all__]
)
def test_ranges_name_settings_of_shipped_strategies_and_hold_their_defaults_or_bounds(strategy):
    space, fixed = parsed_space([f"strategy.{name}={each}" for name, each in ranges_of(strategy).items()])
    config = composed([f"strategy={strategy}"])
    assert not fixed
    assert {key.removeprefix("strategy.") for key in space} <= set(config.strategy)


def test_winner_is_read_from_the_search(tmp_path):
    assert winner("fedavg", tmp_path) is None
    best = {"trial": 3, "validation": 0.5, "overrides": ["train.epochs=2", "++strategy.share=0.5"]}
    (tmp_path / "best.json").write_text(json.dumps(best))
    for name, file in (("0", "summary.json"), ("3", "summary.json"), ("1", "failure.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    assert winner("fedavg", tmp_path) == Winner("fedavg", 3, 1, 3, 0.5, ["train.epochs=2", "strategy.share=0.5"])


def test_interrupted_command_says_how_to_resume():
    with pytest.raises(KeyboardInterrupt) as caught, resumable("tune", ["strategy=fedavg", "a=[1, 2]"]):
        raise KeyboardInterrupt
    assert caught.value.__notes__ == ["resume with: odt-sim tune strategy=fedavg 'a=[1, 2]'"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "strategy: expected the names of strategies"),
        (["strategy=fedavg", "fedprox"], "fedprox: expected KEY=VALUE"),
        (["strategy=fedavg", "budget=0"], "tune.budget: expected a whole number of at least 1, found 0"),
        (["strategy=fedavg", "budget=many"], "tune.budget: expected a whole number, found 'many'"),
        (
            ["strategy=fedavg", "seed=0,5", "tuning_seed=5"],
            "tuning_seed: expected a seed that no compared run uses, found 5",
        ),
        (["strategy=fedavg,no"], "strategy=no: no such option; choose one of "),
        (["strategy=fedavg", "run.round=3"], "run.round: "),
        (["strategy=fedavg", "config_dir=nodir"], "config_dir: expected a folder of options, found no folder nodir"),
        (
            ["config_dir=.", "hydra.searchpath=[pkg://a]"],
            "config_dir: cannot be combined with hydra.searchpath=...; list",
        ),
        (["strategy=local,ditto", "strategy.regularizatio=1"], "strategy.regularizatio: unknown setting; did you mean"),
        (
            ["strategy=fedavg", "hydra.sweeper.n_trials=3"],
            "hydra.sweeper.n_trials: odt-sim tune sets it; give the trials",
        ),
        (["strategy=fedavg", "hydra/sweeper=random"], "hydra/sweeper: odt-sim tune sets it; draw at random by "),
        (["strategy=fedavg", "run.resume=out"], "run.resume: odt-sim tune sets it; the same command resumes"),
        (["strategy=fedavg", "train.learning_rate=0.1'"], "train.learning_rate: cannot read 0.1'; "),
        (
            ["strategy=fedavg,ditto", "train.learning_rate=0.1", "train.epochs=1"],
            "strategy=fedavg: nothing to search, since train.learning_rate, train.epochs each have a single value;",
        ),
        (["strategy=fedavg", "partition=iid,dirichlet"], "partition: expected one value, since a search"),
        (
            ["strategy=fedavg", "model=digits_mlp", "data=npz", "data.path=missing.npz"],
            "data missing.npz: no such file; give the path of an .npz file",
        ),
        (["strategy=fedavg", "model=digits_mlp", "data=arm", "partition=iid"], "data arm seed=0: "),
        (["strategy=fedavg", "model=digits_mlp", "fleet.cohort=99"], "fleet.cohort: expected 1 to "),
    ],
)
def test_mistake_is_reported_before_anything_runs(given, message, tmp_path, monkeypatch, capsys, digits_mlp):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *given]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}"), error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "cleared"),
    [
        (["model.optimizer.learning_rate=0.5"], ["model.optimizer.learning_rate=null"]),
        (["model.optimizer.learning_rate=0.5", "train.learning_rate=0.5"], []),
        (
            ["model.optimizer.learning_rate=0.5", "train.learning_rate=interval(0.1,1)"],
            ["model.optimizer.learning_rate=null"],
        ),
        (["model.optimizer.learning_rate={name: ExponentialDecay, initial_learning_rate: 0.1}"], []),
        ([], []),
    ],
)
def test_models_own_rate_is_cleared_where_trials_draw_one(given, cleared):
    overrides = ["model=digits_mlp", *given]
    assert cleared_rate(composed(fixed_overrides(overrides)), overrides) == cleared


def test_cleared_rate_leaves_that_of_the_model():
    config = composed(["model=digits_mlp", "model.optimizer.learning_rate=null"])
    assert model_spec(config)["optimizer"] == {"name": "SGD", "learning_rate": 0.1}


def test_folder_of_other_settings_is_refused(tmp_path, monkeypatch, capsys, digits_mlp):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "task.json").write_text('{"overrides": ["run.rounds=9"]}')
    assert main(TINY) == 1
    assert (
        "error: out: contains a tuning with other settings, overrides ['run.rounds=9'], found ["
        in capsys.readouterr().err
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["task.json"]


@pytest.mark.slow
def test_search_ends_with_its_command_even_if_that_is_killed(tmp_path, monkeypatch, digits_mlp):
    monkeypatch.chdir(tmp_path)
    long = ["tune", "strategy=fedavg", "output=out", *FEW, "run.rounds=1000000"]
    command = subprocess.Popen([*COMMAND, *long], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: (tmp_path / "out/search/fedavg/0/rounds.jsonl").exists())
        [search] = [
            child for path in Path(f"/proc/{command.pid}/task").glob("*/children") for child in path.read_text().split()
        ]
    finally:
        command.kill()
        command.wait()
    try:
        wait(lambda: not Path(f"/proc/{search}").exists())
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(search), signal.SIGKILL)


def wait(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "out of time"
        time.sleep(0.05)


@pytest.mark.slow
def test_killed_tuning_around_a_models_own_rate_resumes_and_compares_the_winners(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "out"
    given = [*TINY, "model.optimizer.learning_rate=0.5"]
    kill_once(lambda: list(out.glob("search/*/0/summary.json")), given)
    assert main(given) == 0
    printed = capsys.readouterr().out
    chosen = json.loads((out / "tuning.json").read_text())
    assert chosen["searched"]["fedavg"]["train.learning_rate"] == "tag(log,interval(0.017,1.7))"
    assert [each["strategy"] for each in chosen["winners"]] == ["fedavg", "fedprox"]
    for each in chosen["winners"]:
        best = json.loads((out / "search" / each["strategy"] / "best.json").read_text())
        assert each["settings"] == best["overrides"]
        assert all(setting in printed for setting in each["settings"])
        trials = [json.loads(path.read_text()) for path in (out / "search" / each["strategy"]).glob("*/summary.json")]
        assert (each["trials"], {trial["seed"] for trial in trials}) == (2, {1000})  # a trial may diverge
        validated = [trial["metrics_validation"]["accuracy"]["weighted_mean"] for trial in trials]
        assert each["validation"] == max(validated)
        runs = (out / "tuned" / f"{each['strategy']}-trial-{each['trial']}").glob("*/summary.json")
        assert sorted(json.loads(path.read_text())["seed"] for path in runs) == [0]
    comparison = json.loads((out / "comparison.json").read_text())
    assert len(comparison["rows"]) == 2
    page = (out / "report.html").read_text()
    assert "a budget of 2 trials of each strategy" in page
    assert "<td>tag(log,interval(0.017,1.7))</td>" in page
    capsys.readouterr()
    assert main(["report", "out"]) == 0  # without the trials
    assert json.loads((out / "comparison.json").read_text()) == comparison
    assert (out / "report.html").read_text() == page


def test_page_and_table_name_trials_ranges_and_strategies_without_a_winner():
    won = [Winner("fedavg", 5, 1, 3, 0.5, ["train.learning_rate=0.02", "train.epochs=2"])]
    choice = choice_of(plan(), won)
    section = winners_section(choice)
    assert "search with a budget of 5 trials of each strategy, all with seed 9" in section.caption
    assert [[row.name, *(cell.text for cell in row.cells)] for row in section.rows] == [
        ["fedavg", "5 (1 failed)", "0.5", "train.learning_rate=0.02", "tag(log,interval(0.01,1))"],
        ["", "", "", "train.epochs=2", "int(interval(1,5))"],
    ]
    assert section.notes == ["fedprox: no trial has a validation metric."]
    console = Console(file=io.StringIO(), width=80)
    console.print(winners_table(choice))
    assert "train.learning_rate=0.02" in console.file.getvalue()
    assert "5 (1 failed)" in console.file.getvalue()
    words = console.file.getvalue().split()
    assert {"tag(log,", "interval(0.01,", "1))"} <= {*words}  # the narrow table broke no number
