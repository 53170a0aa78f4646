"""Runs of the command with a tracker."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odt_sim import TrainableModel
from odt_sim.cli.commands.run import launch

SMALL = ["backend=serial", "model=softmax", "fleet.devices=4", "fleet.unseen=1", "run.rounds=2"]

MINE = """
import json
from odt_sim.trackers.base import Tracker

class Mine(Tracker):
    def __init__(self, greeting):
        self.calls = [greeting]

    def on_begin(self, run):
        own = sorted(key for key in run.settings if "tracker" in key)
        self.calls.append(["begin", run.name, run.settings["train.epochs"], own])
        self.file = run.folder / "mine.json"

    def on_round(self, record):
        self.calls.append(["round", record["round"]])

    def on_end(self, summary):
        self.calls.append(["end", summary and summary["strategy"]])
        self.file.write_text(json.dumps(self.calls))
"""


@pytest.fixture(autouse=True)
def _exported(softmax: TrainableModel) -> None:
    """Export the model once for all runs."""


@pytest.mark.slow
def test_each_job_of_a_sweep_is_a_tracked_run(read: Callable[[Path], Any], tmp_path: Path) -> None:
    """In a process of its own, which must not import TensorFlow; the second job fails."""
    program = (
        "import json, sys; from odt_sim.cli.main import main; status = main(json.loads(sys.argv[1]));"
        "print(status, sorted({'tensorflow', 'mlflow'} & set(sys.modules)))"
    )
    overrides = ["-m", "tracker=tensorboard", *SMALL, "train.learning_rate=0.1,1e38", f"hydra.sweep.dir={tmp_path}"]
    command = [sys.executable, "-c", program, json.dumps(["run", *overrides])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "1 []", done.stderr
    name = "fedavg model=softmax fleet.devices=4 fleet.unseen=1 train.learning_rate="
    events = read(tmp_path / "0" / "tensorboard" / f"{name}0.1")
    lines = [json.loads(line) for line in (tmp_path / "0" / "rounds.jsonl").read_text().splitlines()]
    found = [(event.step, event.value) for event in events.Scalars("train_loss")]
    assert found == [(line["round"], pytest.approx(line["train_loss"])) for line in lines]
    assert (tmp_path / "0" / "summary.json").exists()
    [folder] = (tmp_path / "1" / "tensorboard").iterdir()
    failed = read(folder)
    assert failed.Tags()["scalars"] == []
    assert (tmp_path / "1" / "failure.json").exists()


def test_tracker_of_a_user_follows_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tracker_of_mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    folder = launch(
        [*SMALL, "tracker._target_=tracker_of_mine.Mine", "+tracker.greeting=hello", "strategy=local"]
    ).folder
    assert folder is not None
    name = "local model=softmax fleet.devices=4 fleet.unseen=1"
    calls = ["hello", ["begin", name, 1, []], ["round", 1], ["round", 2], ["end", "local"]]
    assert json.loads((folder / "mine.json").read_text()) == calls
