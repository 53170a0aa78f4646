"""Searches with Optuna and at random: the same trials without interruption, resumed, and after a kill."""

import json
import re

import pytest
from command_process import kill_once
from commands import FEW, lines, runs
from written_runs import write_run

from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.tuning.search import Pruning, Search, best_trial, pruner
from odt_sim.tuning.space import Choice, Interval, parsed_space

SPACE = ["train.learning_rate=tag(log,interval(0.001,1))", "train.epochs=int(interval(1,3))", "strategy=fedavg,fedper"]
TINY = ["-m", "hydra/sweeper=optuna", *FEW, "run.rounds=1"]


def draws(folder):
    """Return the drawn values of each trial."""
    return json.loads((folder / "search.json").read_text())["trials"]


def ended(folder):
    """Return each trial's validation result, and why it stopped early; None for one that did not end."""
    found = []
    for number in range(len(draws(folder))):
        path = folder / str(number) / "summary.json"
        summary = json.loads(path.read_text()) if path.exists() else None
        figures = summary and summary["metrics_validation"]["accuracy"]["weighted_mean"]
        found.append(summary and (figures, summary.get("stopped")))
    return found


def best_of(folder):
    return json.loads((folder / "best.json").read_text())


# --- the space --------------------------------------------------------------------------------------------------------


def test_space_is_parsed_from_hydras_syntax():
    space, fixed = parsed_space(["seed=3", *SPACE, "strategy.beta=range(0,1,step=0.5)", "train.epochs=2", "seed=4"])
    assert space == {
        "train.learning_rate": Interval(0.001, 1.0, whole=False, log=True),
        "strategy": Choice(("fedavg", "fedper")),
        "strategy.beta": Choice(("0.0", "0.5")),
    }
    assert fixed == ["seed=4", "train.epochs=2"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a.b=interval(2,1)", r"^a\.b: expected an interval from a lower to a higher number, found 2\.0 to 1\.0$"),
        ("a.b=tag(log,interval(0,1))", r"^a\.b: expected an interval above 0 for tag\(log, \.\.\.\), found 0\.0 to"),
    ],
)
def test_interval_that_does_not_fit_is_refused(given, message):
    with pytest.raises(ConfigurationError, match=message):
        parsed_space([given])


def test_random_trials_cover_the_space_and_depend_on_seed_and_number_only(tmp_path):
    space, _ = parsed_space(SPACE)

    def drawn(folder, seed, numbers, size):
        (tmp_path / folder).mkdir(exist_ok=True)
        made = {"maximize": True, "sampler": "random", "pruner": pruner("none", None), "seed": seed}
        search = Search(space, [], tmp_path / folder, **made)
        asked = {}
        for first in range(0, numbers, size):
            asked |= search.ask(range(first, min(first + size, numbers)))
        return [search.overrides(trial) for trial in asked.values()]

    trials = drawn("a", 0, 300, 300)
    values = [dict(each.split("=") for each in trial) for trial in trials]
    rates = [float(each["train.learning_rate"]) for each in values]
    assert 0.001 <= min(rates) < 0.002
    assert 0.5 < max(rates) <= 1
    assert 70 < sum(rate < 0.01 for rate in rates) < 130  # a third of the decades
    assert {each["train.epochs"] for each in values} == {"1", "2", "3"}
    assert {each["strategy"] for each in values} == {"fedavg", "fedper"}
    assert drawn("b", 0, 8, 3) == trials[:8] != drawn("c", 1, 8, 3)
    assert drawn("b", 0, 12, 5) == trials[:12]  # continued, with other batches


# --- searches ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pruner_ends_trials_that_validate_worse(run, folder):
    pruner = ["hydra.sweeper.pruner=median", "hydra.sweeper.pruner_settings={n_startup_trials: 2}"]
    rates = ["train.learning_rate=0.1,0.00001", "run.rounds=4", "run.evaluate_every=1"]
    given = [*TINY, *rates, *pruner, "hydra.sweeper.sampler=random"]
    code, error = run(*given, "hydra.sweeper.n_trials=5", "hydra.sweep.dir=whole")
    assert code == 0, error
    trials, values = ended(folder / "whole"), draws(folder / "whole")
    pruned = [number for number, (_, stopped) in enumerate(trials) if stopped]
    assert pruned
    for number in pruned:
        assert values[number] == {"train.learning_rate": "1e-05"}
        job = folder / "whole" / str(number)
        rounds = len(lines(job / "rounds.jsonl"))
        assert rounds < 4
        stopped = json.loads((job / "summary.json").read_text())["stopped"]
        assert re.fullmatch(rf"validation accuracy \S+ is worse than that of other trials, round {rounds}", stopped)
    assert best_of(folder / "whole")["overrides"] == ["train.learning_rate=0.1"]
    assert run(*given, f"hydra.sweeper.n_trials={pruned[0]}", "hydra.sweep.dir=parts")[0] == 0
    assert run("run.resume=parts", "hydra.sweeper.n_trials=5")[0] == 0
    assert (ended(folder / "parts"), draws(folder / "parts")) == (trials, values)


def test_trial_that_was_rejected_before_a_kill_stops_after_the_same_round(tmp_path):
    pytest.importorskip("optuna")
    settings = {"min_resource": 1, "reduction_factor": 2}
    better = write_run(tmp_path / "0", rounds=1, hydra=False)
    round_of_better = json.loads((better / "rounds.jsonl").read_text().splitlines()[0])
    (better / "rounds.jsonl").write_text(json.dumps({**round_of_better, "round": 1, "validation_accuracy": 0.9}) + "\n")
    costs = {"train_loss": 1.0, "bytes_down": 0, "bytes_up": 0, "seconds": 0.1}
    record = RoundRecord(round=1, strategy="local", devices=2, **costs, figures={"validation_accuracy": 0.1})
    run = RunInfo("local", {}, tmp_path, rounds=4, recorded=[record])
    pruned, resumed = (Pruning(tmp_path, 1, 1, "successive_halving", settings) for _ in range(2))
    assert pruned.on_round(record)
    assert resumed.on_begin(run)
    assert resumed.reason == pruned.reason


@pytest.mark.slow
def test_killed_search_resumes_to_the_trials_of_an_undisturbed_one(run, folder):
    given = [*TINY, *SPACE[:2], "strategy._target_=mine.Slow", "run.rounds=12", "hydra.sweeper.n_trials=3"]
    second = folder / "killed" / "1" / "rounds.jsonl"
    kill_once(
        lambda: second.exists() and len(second.read_bytes().splitlines()) >= 3,
        ["run", *given, "hydra.sweep.dir=killed"],
    )
    assert [each is None for each in ended(folder / "killed")] == [False, True]
    code, error = run("run.resume=killed")
    assert code == 0, error
    assert run(*given, "hydra.sweep.dir=whole")[0] == 0
    assert draws(folder / "killed") == draws(folder / "whole")
    for number in range(3):
        killed, whole = (folder / name / str(number) / "devices.jsonl" for name in ("killed", "whole"))
        assert killed.read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_search_follows_the_direction_of_the_chosen_metric(run, folder):
    (folder / "misses.py").write_text(
        "def wrong(outputs, targets):\n"
        "    return (outputs.argmax(axis=1) != targets).mean()\n"
        "wrong.higher_is_better = False\n"
    )
    given = [
        "-m",
        "hydra/sweeper=random",
        *FEW,
        "metrics=[misses.wrong]",
        "run.metric=wrong",
        "hydra.sweeper.n_trials=3",
    ]
    assert run(*given, "train.learning_rate=tag(log,interval(0.0001,1))", "hydra.sweep.dir=out")[0] == 0
    summaries = [json.loads((path / "summary.json").read_text()) for path in runs(folder / "out")]
    found = [summary["metrics_validation"]["wrong"]["weighted_mean"] for summary in summaries]
    assert best_of(folder / "out")["validation"] == min(found) < max(found)
    code, error = run(*given, "run.metric=no", "train.epochs=choice(1,2)")
    assert code == 1
    assert "error: run.metric: expected a metric of the model or a name from metrics, found no" in error


def test_a_trial_does_not_win_by_the_devices_that_it_loses(tmp_path):
    """Trial 1 has the better mean, over fewer devices."""
    for number, devices in enumerate((6, 5, 6)):
        path = write_run(tmp_path / str(number), rounds=1, hydra=False) / "summary.json"
        summary = json.loads(path.read_text()) | {"metrics_validation": {"accuracy": {"devices": devices}}}
        path.write_text(json.dumps(summary))
    assert best_trial({0: 0.5, 1: 0.9, 2: 0.6}, tmp_path, maximize=True) == 2
    assert best_trial({0: 0.5, 1: 0.1, 2: 0.6}, tmp_path, maximize=False) == 0


@pytest.mark.slow
def test_resumed_search_runs_failed_trials_again(run, folder):
    pytest.importorskip("optuna")
    (folder / "flaky.py").write_text(
        "from pathlib import Path\n\ndef check(record):\n    if Path('bug').exists():\n        raise ValueError('a bug')\n"
    )
    (folder / "bug").touch()
    given = [*TINY, SPACE[0], "callbacks=[flaky.check]", "hydra.sweep.dir=out"]
    assert run(*given, "hydra.sweeper.n_trials=2")[0] == 1
    assert ended(folder / "out") == [None, None]
    (folder / "bug").unlink()
    code, error = run("run.resume=out", "hydra.sweeper.n_trials=3")
    assert code == 0, error
    assert run(*TINY, SPACE[0], "hydra.sweeper.n_trials=3", "hydra.sweep.dir=whole")[0] == 0
    assert (draws(folder / "out"), ended(folder / "out")) == (draws(folder / "whole"), ended(folder / "whole"))


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["seed=1"], r"hydra/sweeper: nothing to search; give a key several values, such as 'train\.learning_rate="),
        (
            ["train.steps=1,2", "hydra.sweeper.sampler=no"],
            r"hydra\.sweeper\.sampler: expected one of tpe, random, found",
        ),
        (
            ["train.epochs=1,2", "hydra.sweeper.pruner=no"],
            r"hydra\.sweeper\.pruner: expected one of none, median, .*found 'no'",
        ),
        (
            ["train.epochs=1,2", "hydra.sweeper.n_trials=0"],
            r"hydra\.sweeper\.n_trials: expected a whole number of at least 1, found",
        ),
        (
            ["train.epochs=1,2", "hydra.sweeper.n_trial=3"],
            r"Could not override 'hydra\.sweeper\.n_trial'; Key 'n_trial' (is )?not in ",
        ),
        (
            ["train.epochs=1,2", "hydra/sweeper=basic", "+hydra.sweeper.direction=maximise"],
            r"hydra\.sweeper\.direction: unknown setting of hydra/sweeper=basic; expected one of max_batch_size, params",
        ),
        (["train.epochs=1,2", "seed=0,1"], r"seed: expected one value, .*; odt-sim tune runs the winner"),
        (["data=synthetic", "data.seed=0,1"], r"data\.seed: expected one value, .*; search once for each"),
        (["partition.alpha=interval(0.1,1)"], r"partition\.alpha: expected one value, since a search over several"),
    ],
)
def test_mistake_is_reported_in_one_line(run, folder, given, message):
    code, error = run(*TINY, *given)
    assert code == 1
    assert re.match(rf"error: {message}", error), error
    assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_folder_of_another_search_is_refused(run, folder):
    pytest.importorskip("optuna")
    given = [*TINY, "hydra.sweeper.n_trials=1", "hydra.sweep.dir=out"]
    assert run(*given, SPACE[0])[0] == 0
    code, error = run(*given, SPACE[0])
    assert (code, "out: already contains a sweep; resume it with run.resume=out" in error) == (1, True), error
    saved = (folder / "out" / "multirun.yaml").read_bytes()
    code, error = run("run.resume=out", "train.learning_rate=interval(1,2)")
    assert (folder / "out" / "multirun.yaml").read_bytes() == saved
    assert (code, "out: contains a search with other settings or intervals" in error) == (1, True), error
