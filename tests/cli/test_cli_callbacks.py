"""Callbacks of the user, named in the configuration."""

import json
import sys

import pytest
from commands import FEW, runs

from odt_sim.cli.hydra import build as config
from odt_sim.cli.hydra.overrides import composed
from odt_sim.errors import ConfigurationError

WATCH = """
from odt_sim.observers.base import Observer


def log(record):
    with open("log", "a") as file:
        print(record.round, file=file)


def stop_after(record, rounds):
    return record.round >= rounds and "enough"


def fails(record):
    return record["f1"]


class StopAfter:
    def __init__(self, rounds: int = 3):
        self.rounds = rounds

    def __call__(self, record):
        return record.round == self.rounds


class Follower(Observer):
    def on_begin(self, run):
        with open("log", "a") as file:
            print(run.name, file=file)
"""
LOCAL = ["strategy=local", *FEW, "run.rounds=4", "hydra.run.dir=here"]


@pytest.fixture
def own(folder, monkeypatch):
    """The working folder, with callbacks of a user."""
    (folder / "watch_rounds.py").write_text(WATCH)
    monkeypatch.delitem(sys.modules, "watch_rounds", raising=False)
    return folder


def summary(folder):
    return json.loads((folder / "here" / "summary.json").read_text())


def test_callbacks_of_a_yaml_file_follow_and_stop_a_run_which_resumes_to_the_same_end(own, run):
    (own / "my" / "experiment").mkdir(parents=True)
    (own / "my" / "experiment" / "short.yaml").write_text(
        "# @package _global_\n"
        "callbacks:\n"
        "  - watch_rounds.log\n"
        "  - _target_: watch_rounds.Follower\n"
        "  - _target_: watch_rounds.StopAfter\n"
        "    rounds: 2\n"
    )
    assert run("--config-dir", "my", "+experiment=short", *LOCAL)[0] == 0
    first = summary(own)
    assert (first["rounds"], first["stopped"]) == (2, "StopAfter, round 2")
    assert first["settings"]["callbacks"] == "log, Follower, StopAfter rounds=2"
    assert (own / "log").read_text().split() == ["local", "1", "2"]
    (own / "here" / "summary.json").unlink()
    assert run("run.resume=here")[0] == 0
    again = summary(own)
    del first["seconds"], again["seconds"]
    assert again == first


@pytest.mark.parametrize(
    ("named", "rounds", "stopped"),
    [
        ("watch_rounds.StopAfter", 3, "StopAfter, round 3"),
        ("{_target_:watch_rounds.stop_after,_partial_:true,rounds:2}", 2, "stop_after rounds=2: enough, round 2"),
    ],
)
def test_callback_on_the_command_line_stops_a_run(own, run, named, rounds, stopped):
    assert run(f"callbacks=[{named}]", *LOCAL)[0] == 0
    assert (summary(own)["rounds"], summary(own)["stopped"]) == (rounds, stopped)


def test_failure_of_a_callback_is_one_line(own, run):
    code, err = run("callbacks=[watch_rounds.fails]", *LOCAL)
    assert code == 1
    [line] = [line for line in err.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: callback fails: failed after round 1 with KeyError: 'f1' (")
    assert "watch_rounds.py:" in line
    [folder] = runs(own)
    assert json.loads((folder / "failure.json").read_text())["error"] == line.removeprefix("error: ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("watch_rounds.nothing", r"^callbacks: watch_rounds has no 'nothing'; check the name$"),
        ("3", r"^callbacks: expected module\.name, such as mine\.3, found 3$"),
        ("{_target_:watch_rounds.StopAfter,round:2}", r"^callbacks\.round: unknown setting; did you mean callbacks\.rounds"),
        ("{_target_:watch_rounds.StopAfter,rounds:x}", r"^callbacks\.rounds: expected a whole number, found 'x'"),
        ("{_target_:watch_rounds.stop_after,rounds:2}", r"'record'; to bind the settings of a function, add _partial_: true"),
        ("{rounds:2}", r"^callbacks: expected functions of a round's record, or observers, found \{'rounds': 2\}"),
    ],
)  # fmt: skip
def test_callback_that_cannot_be_built_is_refused_in_one_line(own, given, message):
    config.add_working_folder()
    with pytest.raises(ConfigurationError, match=message) as caught:
        config.simulation(composed([f"callbacks=[{given}]", *FEW]), own / "here")
    assert "\n" not in str(caught.value)


def test_callbacks_must_be_a_list():
    with pytest.raises(ConfigurationError, match=r"^callbacks: expected a list or null, found 'mine\.stop'$"):
        config.check(composed(["callbacks=mine.stop"]))
