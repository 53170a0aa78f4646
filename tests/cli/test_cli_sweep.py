"""Sweeps: several jobs by one command."""

import json
import os
import re

import numpy as np
import pytest
from commands import FEW, lines, runs


@pytest.mark.slow
def test_sweep_compares_its_jobs_and_names_the_failed_ones(odt_sim, folder):
    code, out, err = odt_sim("run", "-m", "strategy=fedavg,fedper", "train.learning_rate=-1,0.1", *FEW)
    assert code == 1
    [sweep] = {run.parent for run in runs(folder)}
    assert [run.name for run in runs(folder)] == ["1", "3"]
    message = r"train\.learning_rate: expected a number above 0 or null, found -1"
    reasons = re.findall(r"^failed strategy=fed\w+, train\.learning_rate=-1, [^:]*: (.*)", err, re.M)
    assert re.match(message, reasons[0])
    assert reasons[1:] == ["for the same reason"]
    failed = out[out.index("failed") :]
    assert re.search(r"failed\s+fedavg \S+,\s+fedper \S+:", failed)
    assert re.search(message, " ".join(failed.split()))
    assert f"report: {sweep.relative_to(folder)}/report.html" in out


def test_sweep_repeats_a_reason_after_another_one(odt_sim):
    _, _, err = odt_sim("run", "-m", *FEW, "train.learning_rate=-1,-2,-1,-1")
    assert re.findall(r"^failed .*: (?:.*found )?(.*?)(?:;.*)?$", err, re.M) == [
        "-1",
        "-2",
        "-1",
        "for the same reason",
    ]


def test_sweep_sets_keys_of_the_swept_options_alone(run, folder):
    code, error = run("-m", "strategy=ditto,mr_mtl", "strategy.regularization=0.25", *FEW, "run.rounds=1")
    assert code == 0, error
    saved = [(path / ".hydra" / "config.yaml").read_text() for path in runs(folder)]
    assert len(saved) == 2
    assert all("regularization: 0.25" in config for config in saved)


@pytest.mark.parametrize(("strategy", "reason"), [("Surprises", "AttributeError: a bug"), ("Exits", "no reason")])
def test_job_that_fails_in_user_code_does_not_end_the_sweep(run, folder, strategy, reason):
    code, error = run("-m", *FEW, "run.rounds=1", f"strategy._target_=mine.{strategy},mine.Halfway")
    assert code == 1
    assert [path.name for path in runs(folder)] == ["1"]
    assert reason in " ".join(error.split())
    assert "Halfway" in error


def test_jobs_have_their_own_storage_and_resume_alone(run, folder):
    sweep = ["-m", "strategy=fedavg,fedper", *FEW, "run.rounds=1", "run.storage='kept here'"]
    for name in ("first", "second"):  # with the same storage
        assert run(*sweep, f"hydra.sweep.dir=multirun/{name}")[0] == 0
    names = {str(path.relative_to(folder)) for path in folder.rglob("server.1.safetensors")}
    sweeps = [(name, job) for name in ("first", "second") for job in (0, 1)]
    assert names == {f"kept here/{name}/{job}/server.1.safetensors" for name, job in sweeps}
    job = runs(folder)[1]
    assert run(f"run.resume={job}", "run.rounds=2")[0] == 0
    assert [row["strategy"] for row in lines(job / "rounds.jsonl")] == ["fedper"] * 2
    assert run("strategy=fedper", *FEW, "hydra.run.dir=whole")[0] == 0
    assert (job / "devices.jsonl").read_bytes() == (folder / "whole" / "devices.jsonl").read_bytes()


@pytest.mark.slow
def test_one_ray_and_its_actors_serve_all_jobs(run, folder):
    jobs = ["strategy._target_=mine.Halfway", "seed=0,1", "backend=ray", "backend.actors=2"]
    code, error = run("-m", *FEW, *jobs)
    assert code == 0, error
    first, second = ({row["process"] for row in lines(path / "devices.jsonl")} for path in runs(folder))
    assert first == second
    assert os.getpid() not in first
    assert len(first) == 2


def test_sweeper_gets_the_validation_figure_of_each_job(run, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    code, error = run("-m", *FEW, "fleet.cohort=3,9", "+hydra.callbacks.value._target_=mine.WriteValue")
    assert (code, "failed" in error) == (1, True)
    value, failed = (float(line) for line in (folder / "values").read_text().splitlines())
    (summary,) = (json.loads(path.read_text()) for path in folder.rglob("summary.json"))
    assert value == summary["metrics_validation"]["accuracy"]["weighted_mean"] > 0
    assert np.isnan(failed)
