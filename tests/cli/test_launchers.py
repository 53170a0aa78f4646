"""Launchers that run the jobs of a sweep in separate processes."""

import os
import re
import subprocess

import pytest
from command_process import COMMAND
from commands import FEW, lines, runs

SUBMITIT = ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5", "hydra.launcher.cpus_per_task=1"]


@pytest.fixture
def odt_sim():
    """Return a function that runs the command as a process, because submitit closes the streams that pytest captures."""

    def call(*arguments):
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=500)
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.mark.slow
def test_submitit_runs_resumes_and_compares_a_sweep(odt_sim, run, folder):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    given = ["-m", "strategy._target_=mine.Halfway,mine.FailsOnce", *FEW, "run.rounds=3"]
    code, out, error = odt_sim("run", *given, *SUBMITIT, "hydra.sweep.dir=sweep")
    assert code == 1, error
    assert re.search(r"failed\s+FailsOnce", out)
    assert "report: sweep/report.html" in out
    [processes] = [{row["process"] for row in lines(runs(folder)[0] / "devices.jsonl")}]
    assert os.getpid() not in processes
    code, out, error = odt_sim("run", "run.resume=sweep")
    assert code == 0, error
    logs = "".join(path.read_text() for path in sorted((folder / "sweep" / ".submitit").rglob("*_log.err")))
    assert logs.count("already done: sweep/0") == 1
    assert run(*given, "hydra.sweep.dir=whole")[0] == 0
    for job in "01":
        ends = [(folder / name / job / "rounds.jsonl").read_text().count('"round"') for name in ("sweep", "whole")]
        assert ends == [3, 3]
    one, other = (folder / name / "1" / "devices.jsonl" for name in ("sweep", "whole"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_submitit_runs_trials_of_a_search_together(odt_sim, folder):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    search = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=2", "hydra.sweep.dir=out"]
    pruner = ["hydra.sweeper.pruner=median", "run.evaluate_every=1"]
    code, _, error = odt_sim(
        "run", "-m", *search, *pruner, *FEW, *SUBMITIT, "train.learning_rate=tag(log,interval(0.001,1))"
    )
    assert code == 0, error
    assert "best trial: out/" in error
    assert len(runs(folder)) == 2
