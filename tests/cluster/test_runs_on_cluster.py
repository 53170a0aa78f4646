"""Runs on a cluster: by `ray job submit`, and with a joining node; one file, so that one cluster runs at a time."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from odt_sim import TrainableModel
from odt_sim.cli.commands.run import launch
from tests.cluster.conftest import SECONDS as START
from tests.cluster.conftest import Head
from tests.torture.disturbed import COMMAND, outcome

SECONDS = 300  # seconds for a job on a busy machine
GIVEN = ["model=softmax", "fleet.devices=8", "fleet.unseen=2", "run.rounds=3", "strategy._target_=theirs.Mine"]
THEIRS = """
from odt_sim import Strategy

class Mine(Strategy):
    def local(self, device, broadcast):
        device.state["kept"] = broadcast["weights"]
        return super().local(device, broadcast)
"""


def test_submitted_run_equals_the_serial_one(
    head: Head, softmax: TrainableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strategy is a file in the working folder that is submitted with the job."""
    sent = tmp_path / "sent"
    sent.mkdir()
    (sent / "theirs.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(sent)
    assert launch([*GIVEN, "backend=serial", f"hydra.run.dir={tmp_path}/serial"]).failed == 0
    ray, odt_sim = (Path(sys.executable).with_name(name) for name in ("ray", "odt-sim"))
    command = [ray, "job", "submit", f"--address={head.dashboard}", f"--working-dir={sent}", "--", "sh", "-c"]
    there = ["backend.address=auto", f"hydra.run.dir={tmp_path}/submitted"]
    lost = ["--multirun", *GIVEN, "run.rounds=1", "seed=0", "backend=serial", f"hydra.run.dir={tmp_path}/ignored"]
    both = " && ".join(shlex.join([str(odt_sim), "run", *given]) for given in ([*GIVEN, *there], lost))
    done = submitted([*command, both], {**os.environ, **head.environment})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout
    assert outcome(tmp_path / "submitted") == outcome(tmp_path / "serial")
    ignored = "warning hydra.run.dir is ignored with -m; set the sweep's folder with hydra.sweep.dir"
    of_run, of_sweep = done.stdout.split(ignored)
    assert "temporary copy" not in of_run
    assert "warning results go to Ray's temporary copy of your folder; set a permanent folder" in of_sweep
    assert re.search(r"^report: /\S+/working_dir_files/\S+/report\.html$", of_sweep, re.MULTILINE)


def submitted(command: list[Any], environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run `ray job submit`; retry while the head's agent is starting."""
    until = time.monotonic() + SECONDS
    while True:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
        if "No available agent" not in done.stderr or time.monotonic() > until:
            return done
        time.sleep(1)


JOINING = ["model=softmax", "fleet.devices=8", "fleet.unseen=2", "run.rounds=60", "strategy._target_=growing.Seen"]
SEEN_ON = """
import os, time
from pathlib import Path
from odt_sim import Strategy

SEEN = Path(__file__).with_name("seen")

class Seen(Strategy):
    rounds = 0

    def local(self, device, broadcast):
        if SEEN.exists():
            import ray
            (SEEN / ray.get_runtime_context().get_node_id()).touch()
        return super().local(device, broadcast)

    def aggregate(self, state, updates):
        self.rounds += 1
        if SEEN.exists() and self.rounds >= 3:
            (SEEN / "third round").touch()
            while not (SEEN / "joined").exists():
                time.sleep(0.1)
            if len(os.listdir(SEEN)) < 4:  # both marks, and a file of each node
                time.sleep(2)
        return super().aggregate(state, updates)
"""


def test_node_that_joins_is_used_and_changes_no_bit(head: Head, softmax: TrainableModel, tmp_path: Path, monkeypatch):
    theirs, seen = tmp_path / "theirs", tmp_path / "theirs" / "seen"
    theirs.mkdir()
    (theirs / "growing.py").write_text(SEEN_ON)
    monkeypatch.syspath_prepend(theirs)
    assert launch([*JOINING, "backend=serial", f"hydra.run.dir={tmp_path}/serial"]).failed == 0
    there = [f"backend.address={head.address}", f"hydra.run.dir={tmp_path}/grown"]
    environment = {**os.environ, **head.environment, "PYTHONPATH": str(theirs)}
    seen.mkdir()
    with subprocess.Popen(
        [*COMMAND, "run", *JOINING, *there], env=environment, text=True, stderr=subprocess.PIPE
    ) as run:
        try:
            wait_for(seen / "third round", run)
            added = head.add_node()
            (seen / "joined").touch()
            _, errors = run.communicate(timeout=2 * START)
        finally:
            run.kill()
    assert run.returncode == 0, errors
    assert (seen / added).exists()
    assert outcome(tmp_path / "grown") == outcome(tmp_path / "serial")


def wait_for(file: Path, run: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + START
    while not file.exists():
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < deadline, f"no {file.name} within {START} s"
        time.sleep(0.1)
