"""Runs that go on, and sweeps of several."""

import json
import os
import re

import numpy as np
import pytest
from commands import FEW, lines, runs
from safetensors.numpy import load_file

# --- going on ---------------------------------------------------------------------------------------------------------


def test_a_failed_run_goes_on_by_its_folder_alone(odt_sim, folder):
    given = ["strategy._target_=mine.FailsOnce", *FEW, "run.rounds=3", "seed=5"]
    code, _, error = odt_sim("run", *given, "hydra.run.dir=out")
    assert code == 1
    assert "RuntimeError: once" in error, error
    kept = (folder / "out" / ".hydra" / "config.yaml").read_bytes()
    assert [row["round"] for row in lines(folder / "out" / "rounds.jsonl")] == [1]
    assert odt_sim("run", "run.resume=out")[0] == 0
    assert json.loads((folder / "out" / "summary.json").read_text())["seed"] == 5
    assert (folder / "out" / ".hydra" / "config.yaml").read_bytes() == kept
    assert odt_sim("run", *given, "hydra.run.dir=whole")[0] == 0
    assert (folder / "out" / "devices.jsonl").read_bytes() == (folder / "whole" / "devices.jsonl").read_bytes()
    ended = [load_file(folder / name / "checkpoint" / "server.3.safetensors") for name in ("out", "whole")]
    np.testing.assert_equal(*ended)


def test_what_a_call_changes_of_a_run_is_kept_for_the_next(odt_sim, folder):
    """A finished run is given more rounds and fails in them: it goes on by its folder alone, and as the newest like this."""
    given = ["strategy._target_=mine.FailsOnce", *FEW, "run.rounds=1"]
    assert odt_sim("run", *given)[0] == 0
    [run] = runs(folder)
    left = run / ".hydra" / ".config.yaml.0a1b2c3d.part"  # by a killed write
    left.touch()
    code, _, error = odt_sim("run", f"run.resume={run}", "run.rounds=3")
    assert (code, len(lines(run / "rounds.jsonl"))) == (1, 1), error
    assert not left.exists()
    left.touch()
    assert odt_sim("run", f"run.resume={run}")[0] == 0
    assert not left.exists()  # though nothing was changed
    assert len(lines(run / "rounds.jsonl")) == 3
    (run / "summary.json").unlink()
    assert odt_sim("run", *given, "run.rounds=3", "run.resume=auto")[0] == 0
    assert runs(folder) == [run]


@pytest.mark.parametrize("resume", ["run.resume", "++run.resume"])
def test_the_same_command_line_goes_on_also_where_it_adds_a_setting(odt_sim, folder, resume):
    given = [*FEW, "+note=mine", "hydra.run.dir=out"]
    assert odt_sim("run", *given)[0] == 0
    code, _, error = odt_sim("run", *given, "run.rounds=3", f"{resume}=out")
    assert (code, len(lines(folder / "out" / "rounds.jsonl"))) == (0, 3), error


def test_what_a_run_in_a_changed_folder_says_and_keeps_is_seen_from_where_it_was_started(odt_sim, folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    given = ["strategy._target_=mine.Interrupted", *FEW, "run.storage=kept", "hydra.run.dir=out"]
    code, _, error = odt_sim("run", *given, "hydra.job.chdir=true")
    assert code == 130, error
    assert error.splitlines()[-1] == "interrupted; resume with: odt-sim run run.resume=out"
    assert {path.parent for path in folder.rglob("server.1.safetensors")} == {folder / "kept"}
    assert odt_sim("run", "run.resume=out")[0] == 0
    assert [row["round"] for row in lines(folder / "out" / "rounds.jsonl")] == [1, 2]


def test_another_run_is_not_gone_on_with_and_nothing_is_touched(odt_sim, folder):
    odt_sim("run", "strategy._target_=mine.FailsOnce", *FEW, "hydra.run.dir=out")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, err = odt_sim("run", "run.resume=out", "seed=7")
    assert code == 1
    assert re.search(
        r"^error: \S+server\.\d\.safetensors: of a run with seed 0, this one has 7; resume with the same", err, re.M
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_jobs_of_a_sweep_keep_apart_below_one_storage_and_go_on_alone(odt_sim, folder):
    few = [*FEW, "run.rounds=2"]
    assert odt_sim("run", "-m", "strategy=fedavg,fedper", *few, "run.storage='kept here'")[0] == 0
    names = {str(path.relative_to(folder)) for path in folder.rglob("server.2.safetensors")}
    assert names == {f"kept here/{job}/server.2.safetensors" for job in (0, 1)}
    job = runs(folder)[1]
    assert odt_sim("run", f"run.resume={job}", "run.rounds=3")[0] == 0
    assert len(lines(job / "rounds.jsonl")) == 3
    assert odt_sim("run", "strategy=fedper", *FEW, "run.rounds=3", "hydra.run.dir=whole")[0] == 0
    assert (job / "devices.jsonl").read_bytes() == (folder / "whole" / "devices.jsonl").read_bytes()


# --- sweeps -----------------------------------------------------------------------------------------------------------


def test_a_sweep_compares_its_jobs_and_names_the_failed_one(odt_sim, folder):
    code, out, err = odt_sim("run", "-m", "strategy=fedavg,fedper", "train.learning_rate=-1,0.1", *FEW)
    assert code == 1
    [sweep] = {run.parent for run in runs(folder)}
    assert [run.name for run in runs(folder)] == ["1", "3"]
    message = r"train\.learning_rate: expected a number above 0 or null, found -1"
    assert len(re.findall(rf"^failed strategy=fed\w+, train\.learning_rate=-1, .*: {message}", err, re.M)) == 2
    failed = out[out.index("failed") :]
    assert len(re.findall(r"failed\s+fed\w+", failed)) == 2
    assert re.search(message, " ".join(failed.split()))
    assert f"report: {sweep.relative_to(folder)}/report.html" in out


def test_a_sweep_sets_keys_that_only_the_swept_options_have(odt_sim, folder):
    code, _, error = odt_sim("run", "-m", "strategy=ditto,mr_mtl", "strategy.regularization=0.25", *FEW)
    assert code == 0, error
    kept = [(run / ".hydra" / "config.yaml").read_text() for run in runs(folder)]
    assert len(kept) == 2
    assert all("regularization: 0.25" in config for config in kept)


def test_a_job_with_a_bug_does_not_end_the_sweep(odt_sim, folder):
    code, out, err = odt_sim("run", "-m", *FEW, "strategy._target_=mine.Surprises,mine.Halfway")
    assert code == 1
    assert "Traceback" in err
    assert [run.name for run in runs(folder)] == ["1"]
    assert "AttributeError: a bug" in " ".join(out.split())
    assert "Halfway" in out


def test_one_ray_and_its_actors_serve_all_jobs(odt_sim, folder):
    jobs = ["strategy._target_=mine.Halfway", "seed=0,1", "backend=ray", "backend.actors=2"]
    code, _, err = odt_sim("run", "-m", *FEW, *jobs)
    assert code == 0, err
    first, second = ({row["process"] for row in lines(run / "devices.jsonl")} for run in runs(folder))
    assert first == second
    assert os.getpid() not in first
    assert len(first) == 2


def test_a_job_of_a_sweep_goes_on_alone(odt_sim, folder):
    assert odt_sim("run", "+experiment=demo", *FEW)[0] == 0
    job = runs(folder)[3]
    code, out, _ = odt_sim("run", f"run.resume={job.relative_to(folder)}", "run.rounds=3")
    assert code == 0
    assert [row["strategy"] for row in lines(job / "rounds.jsonl")] == ["fedper"] * 3
    assert len(runs(folder)) == 4
    assert out.rstrip().endswith(f"{job.name}/report.html")


def test_a_job_tells_a_sweeper_its_validation_figure(odt_sim, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    code, _, err = odt_sim("run", "-m", *FEW, "fleet.cohort=3,9", "+hydra.callbacks.tell._target_=mine.Tell")
    assert (code, "failed" in err) == (1, True)
    told, failed = (float(line) for line in (folder / "told").read_text().splitlines())
    (summary,) = (json.loads(path.read_text()) for path in folder.rglob("summary.json"))
    assert told == summary["metrics_validation"]["accuracy"]["weighted_mean"] > 0
    assert np.isnan(failed)
