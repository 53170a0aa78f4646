"""Resume whole sweeps: complete jobs stay, unfinished jobs continue, missing jobs run."""

import re
import shutil
from pathlib import Path

import pytest
from command_process import kill_once
from commands import FEW, lines, runs
from omegaconf import OmegaConf

from odt_sim.cli.commands.resume import resume_hint
from odt_sim.cli.commands.run import Folders

SWEEP = ["-m", *FEW, "strategy=fedavg,fedper", "hydra.sweep.dir=sweep"]
RESUME = "run.resume=sweep"


def bits(folder):
    return {path.name: (path / "devices.jsonl").read_bytes() for path in runs(folder)}


@pytest.fixture
def sweep(run, folder):
    """A complete sweep of two jobs."""
    code, error = run(*SWEEP)
    assert code == 0, error
    return folder / "sweep"


@pytest.mark.parametrize(
    "given", [["-m", RESUME], *(pytest.param(given, marks=pytest.mark.slow) for given in ([RESUME], [*SWEEP, RESUME]))]
)
def test_resumed_sweep_runs_what_is_missing(run, sweep, given):
    before, written = bits(sweep), (sweep / "0" / "summary.json").stat().st_mtime_ns
    shutil.rmtree(sweep / "1")
    code, error = run(*given)
    assert code == 0, error
    assert re.search(r"^already done: sweep/0 .*strategy=fedavg", error, re.M)
    assert "sweep/1" not in error
    assert bits(sweep) == before
    assert (sweep / "0" / "summary.json").stat().st_mtime_ns == written


def test_new_sweep_in_the_folder_of_another_is_refused_and_leaves_it_as_it_was(run, sweep):
    before = {path: path.read_bytes() for path in sweep.rglob("*") if path.is_file()}
    code, error = run("-m", *FEW, "seed=1,2,3", "hydra.sweep.dir=sweep")
    refused = "error: sweep: already contains a sweep; resume it with run.resume=sweep, or choose another folder"
    assert (code, error.splitlines()[-1]) == (1, refused)
    code, error = run("-m", *FEW, "seed=1,2", "hydra.sweep.dir=sweep/0")
    assert (code, error.splitlines()[-1]) == (
        1,
        "error: sweep/0: already contains a run; choose another folder, hydra.sweep.dir=...",
    )
    assert {path: path.read_bytes() for path in sweep.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_half_done_job_resumes_to_the_same_bits(run, folder):
    fails = ["-m", "strategy._target_=mine.FailsOnce,mine.Halfway", *FEW, "run.rounds=3", "run.storage=kept"]
    code, error = run(*fails, "hydra.sweep.dir=sweep")
    assert (code, "failed strategy._target_=mine.FailsOnce" in error) == (1, True)
    assert len(lines(folder / "sweep" / "0" / "rounds.jsonl")) == 1
    code, error = run(RESUME)
    assert code == 0, error
    assert re.findall(r"^already done: (\S+)", error, re.M) == ["sweep/1"]
    assert not (folder / "sweep" / "0" / "failure.json").exists()
    assert run(*fails, "run.storage=whole", "hydra.sweep.dir=whole")[0] == 0
    assert bits(folder / "sweep") == bits(folder / "whole")


@pytest.mark.slow
def test_job_that_fails_again_is_reported_again(odt_sim, folder):
    fails = ["-m", "strategy._target_=mine.Surprises,mine.Halfway", *FEW, "run.rounds=1", "hydra.sweep.dir=sweep"]
    assert odt_sim("run", *fails)[0] == 1
    code, out, error = odt_sim("run", RESUME)
    assert (code, error.count("already done")) == (1, 1)
    assert re.search(r"failed\s+Surprises", out)


@pytest.mark.slow
def test_resumed_sweep_uses_its_models_if_they_are_exported_otherwise_now(run, folder):
    code, error = run("-m", *FEW, "seed=0,1", "model.seed=9", "run.rounds=1", "hydra.sweep.dir=sweep")
    assert code == 0, error
    began = (folder / "sweep/0/initial.tflite").read_bytes()
    for path in (
        "multirun.yaml",
        "0/.hydra/config.yaml",
        "0/.hydra/overrides.yaml",
    ):  # as if seed 0 had given this file
        file = folder / "sweep" / path
        file.write_text(file.read_text().replace("model.seed=9", "model.seed=0").replace("  seed: 9", "  seed: 0"))
    shutil.rmtree(folder / "sweep/1")
    code, error = run(RESUME, "run.rounds=2")
    assert code == 0, error
    assert len(re.findall(r"uses the one with which it began, sweep/0/initial.tflite", error)) == 2
    assert [(path / "initial.tflite").read_bytes() == began for path in runs(folder / "sweep")] == [True, True]
    assert [len(lines(path / "rounds.jsonl")) for path in runs(folder / "sweep")] == [2, 2]
    code, error = run(RESUME, "run.rounds=3", "model.seed=1", "seed=0")
    assert "uses the one" not in error


@pytest.mark.slow
def test_further_values_run_beside_those_that_are_done(run, sweep):
    before = bits(sweep)
    code, error = run(RESUME, "seed=0,1")
    assert code == 0, error
    assert re.findall(r"^already done: (\S+)", error, re.M) == ["sweep/0", "sweep/1"]
    after = bits(sweep)
    assert sorted(after) == ["0", "1", "1-2", "3"]
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_more_rounds_continue_every_job(run, sweep):
    code, error = run(RESUME, "run.rounds=3")
    assert code == 0, error
    assert [len(lines(path / "rounds.jsonl")) for path in runs(sweep)] == [3, 3]


@pytest.mark.slow
def test_interrupted_sweep_says_how_to_resume(odt_sim, run, folder):
    interrupted = ["strategy._target_=mine.Interrupted,mine.Halfway", *FEW, "hydra.sweep.dir=sweep"]
    code, _, error = odt_sim("run", "-m", *interrupted)
    assert code == 130
    assert error.splitlines()[-1] == "interrupted; resume with: odt-sim run run.resume=sweep"
    code, error = run(RESUME)
    assert code == 0, error
    assert [len(lines(path / "rounds.jsonl")) for path in runs(folder)] == [2, 2]


def test_sweep_interrupted_outside_of_its_jobs_says_how_to_resume(odt_sim, folder):
    between = ["+hydra.callbacks.mine._target_=mine.InterruptsBetweenJobs", *FEW, "hydra.sweep.dir=sweep"]
    code, _, error = odt_sim("run", "-m", "seed=0,1", *between)
    assert (code, error) == (130, "interrupted; resume with: odt-sim run run.resume=sweep\n")


def test_submitted_sweep_warns_of_lost_results_and_prints_absolute_paths(odt_sim, folder, monkeypatch):
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"working_dir": "gcs://_ray_pkg.zip"}}')
    between = ["+hydra.callbacks.mine._target_=mine.InterruptsBetweenJobs", *FEW, "hydra.sweep.dir=sweep"]
    _, _, error = odt_sim("run", "-m", "seed=0,1", *between, "hydra.run.dir=out")
    copy = "results go to Ray's temporary copy of your folder; set a permanent folder: hydra.sweep.dir=/shared/..."
    assert error.splitlines() == [
        "warning hydra.run.dir is ignored with -m; set the sweep's folder with hydra.sweep.dir",
        f"warning {copy}",
        f"interrupted; resume with: odt-sim run run.resume={folder}/sweep",
    ]


@pytest.mark.parametrize(("place", "warns"), [("out", True), ("/shared/out", False)])
def test_submitted_run_warns_of_lost_results(capsys, monkeypatch, place, warns):
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"working_dir": "gcs://_ray_pkg.zip"}}')
    Folders().on_run_start(OmegaConf.create({"hydra": {"run": {"dir": place}}}))
    assert ("permanent folder: hydra.run.dir=/shared/..." in capsys.readouterr().err) is warns


def test_resume_hint_is_absolute_outside_of_the_first_folder():
    assert resume_hint(Path("/a/run"), Path("/a/b")) == "resume with: odt-sim run run.resume=/a/run"


@pytest.mark.slow
def test_killed_sweep_resumes_to_the_bits_of_an_undisturbed_one(run, folder):
    given = ["-m", "strategy._target_=mine.Slow", *FEW, "run.rounds=12", "seed=0,1,2"]
    second = folder / "sweep" / "1" / "rounds.jsonl"
    kill_once(
        lambda: second.exists() and len(second.read_bytes().splitlines()) >= 3, ["run", *given, "hydra.sweep.dir=sweep"]
    )
    assert len(lines(second)) < 12
    code, error = run(RESUME)
    assert code == 0, error
    assert re.findall(r"^already done: (\S+)", error, re.M) == ["sweep/0"]
    assert run(*given, "hydra.sweep.dir=whole")[0] == 0
    assert bits(folder / "sweep") == bits(folder / "whole")
    assert len(bits(folder / "sweep")) == 3
