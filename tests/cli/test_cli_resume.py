"""Resume runs: by their folder, by the same command line, and with `run.resume=auto`."""

import json
import re
from threading import Thread

import numpy as np
import pytest
from commands import FEW, lines, runs
from safetensors.numpy import load_file

from odt_sim.cli.hydra.saved_config import named_start
from odt_sim.errors import ExportError
from odt_sim.persistence.storage import locked

FAILS = ["strategy._target_=mine.FailsOnce", *FEW, "run.rounds=3"]
AUTO = [*FAILS, "run.resume=auto"]


def rounds(folder):
    return [row["round"] for row in lines(folder / "rounds.jsonl")]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- by a folder ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_failed_run_resumes_by_its_folder_alone_with_equal_bits(run, folder):
    code, error = run(*FAILS, "seed=5", "hydra.run.dir=out")
    assert code == 1
    assert "RuntimeError: once" in error, error
    saved = (folder / "out" / ".hydra" / "config.yaml").read_bytes()
    assert rounds(folder / "out") == [1]
    assert run("run.resume=out")[0] == 0
    assert json.loads((folder / "out" / "summary.json").read_text())["seed"] == 5
    assert (folder / "out" / ".hydra" / "config.yaml").read_bytes() == saved
    assert run(*FAILS, "seed=5", "hydra.run.dir=whole")[0] == 0
    assert (folder / "out" / "devices.jsonl").read_bytes() == (folder / "whole" / "devices.jsonl").read_bytes()
    ended = [load_file(folder / name / "checkpoint" / "server.3.safetensors") for name in ("out", "whole")]
    np.testing.assert_equal(*ended)


@pytest.mark.parametrize(
    "command", [["run", "run.resume=../out", "run.rounds=2"], ["deploy", "../out", "--device", "0"]]
)
def test_data_that_is_not_found_from_another_folder_names_where_the_run_was_started(
    command, odt_sim, run, folder, monkeypatch
):
    y = np.arange(60, dtype=np.int32) % 10
    np.savez("few.npz", x=np.zeros((60, 8, 8, 1), np.float32), y=y)
    own = ["data=npz", "data.path=few.npz", "partition=iid"]
    assert run(*FEW, *own, "run.rounds=1", "hydra.run.dir=out")[0] == 0
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    code, _, error = odt_sim(*command)
    assert code == 1
    assert re.search(r"^error: data few\.npz: no such file; ", error, re.M), error
    assert error.endswith(
        f"; its paths are relative to {folder}, where the run was started; run the command there, or say "
        "where the data is: data.path=...\n"
    )
    expected = r"no such file; its paths are relative to .*, where the run was started; run the command there$"
    with pytest.raises(ExportError, match=expected), named_start(folder / "out"):
        raise ExportError("net.keras: no such file")


@pytest.mark.slow
def test_run_of_a_model_that_is_exported_otherwise_now_resumes_with_its_own(run, folder):
    assert run(*FEW, "run.rounds=1", "hydra.run.dir=out")[0] == 0
    code, error = run("run.resume=out", "run.rounds=2", "model.seed=9")
    assert code == 1
    assert "model=tflite model.path=FOLDER/initial.tflite" in error
    assert run("run.resume=out", "run.rounds=2", "model=tflite", "model.path=out/initial.tflite")[0] == 0
    assert rounds(folder / "out") == [1, 2]


@pytest.mark.slow
def test_changed_settings_of_a_resumed_run_are_saved(run, folder):
    given = ["strategy._target_=mine.FailsOnce", *FEW, "run.rounds=1", "hydra.run.dir=out"]
    assert run(*given)[0] == 0
    assert run("run.resume=out", "run.rounds=3")[0] == 1
    assert rounds(folder / "out") == [1]
    assert run("run.resume=out")[0] == 0
    assert rounds(folder / "out") == [1, 2, 3]


@pytest.mark.slow
def test_interrupted_run_prints_how_to_resume_from_the_first_folder(odt_sim, run, folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    given = ["strategy._target_=mine.Interrupted", *FEW, "run.storage=kept", "hydra.run.dir=out"]
    code, _, error = odt_sim("run", *given, "hydra.job.chdir=true")
    assert code == 130, error
    assert error.splitlines()[-1] == "interrupted; resume with: odt-sim run run.resume=out"
    assert {path.parent for path in folder.rglob("server.1.safetensors")} == {folder / "kept"}
    assert run("run.resume=out")[0] == 0
    assert rounds(folder / "out") == [1, 2]


def test_other_settings_are_refused_and_the_folder_stays_as_it_is(run, folder):
    run(*FAILS, "hydra.run.dir=out")
    before = contents(folder)
    code, error = run("run.resume=out", "seed=7")
    assert code == 1
    assert re.search(
        r"^error: \S+server\.\d\.safetensors: belongs to a run with seed 0, but this run has 7;", error, re.M
    )
    assert contents(folder) == before


@pytest.mark.slow
def test_run_that_stopped_early_stops_again_after_the_same_round(run, folder):
    given = [*FEW, "run.rounds=6", "run.evaluate_every=1", "run.until=target", "run.target=0.2", "hydra.run.dir=out"]
    assert run(*given)[0] == 0
    stopped = json.loads((folder / "out" / "summary.json").read_text())["stopped"]
    assert re.fullmatch(r"validation accuracy reached 0\.2 \(0\.\d+\), round [1-5]", stopped)
    devices, whole = (folder / "out" / "devices.jsonl").read_bytes(), rounds(folder / "out")
    assert len(whole) < 6
    assert run("run.resume=out")[0] == 0
    assert rounds(folder / "out") == whole
    assert (folder / "out" / "devices.jsonl").read_bytes() == devices
    assert json.loads((folder / "out" / "summary.json").read_text())["stopped"] == stopped


def test_job_of_a_sweep_that_slurm_requeued_resumes(run, folder, monkeypatch):
    sweep = ["-m", *FAILS, "hydra.sweep.dir=out"]
    assert run(*sweep)[0] == 1
    (folder / "out" / "multirun.yaml").unlink()  # the requeued process runs the job, not the sweep
    code, error = run(*sweep)
    assert code == 1
    assert "out/0: already contains a run" in error
    (folder / "out" / "multirun.yaml").unlink()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert run(*sweep)[0] == 0
    assert rounds(folder / "out" / "0") == [1, 2, 3]


# --- run.resume=auto --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_same_command_line_starts_resumes_and_starts_again(run, folder):
    code, error = run(*AUTO)
    assert code == 1
    assert error.startswith("no unfinished run of this configuration; starting a new one in outputs/"), error
    [first] = runs(folder)
    run(*FEW, "run.rounds=1")  # finished
    run(*FAILS, "seed=1", "train.learning_rate=1e38")  # unfinished, of another configuration
    before = runs(folder)
    code, error = run(*AUTO, "tracker=tensorboard")
    assert code == 0
    assert error.startswith(f"resuming {first.relative_to(folder)}\n"), error
    assert rounds(first) == [1, 2, 3]
    assert (first / "tensorboard").is_dir()
    assert runs(folder) == before
    assert run(*AUTO)[0] == 0
    assert len(runs(folder)) == len(before) + 1


@pytest.mark.slow
def test_named_folder_resumes_only_the_same_configuration(run, folder):
    there = [*AUTO, "hydra.run.dir=out"]
    assert run(*there)[0] == 1
    code, error = run(*there, "seed=1")
    assert code == 1
    assert re.search(
        r"^error: \S+out: contains a run of another configuration; resume it with run\.resume=", error, re.M
    )
    code, error = run(*there)
    assert code == 0
    assert error.startswith("resuming out\n")
    assert run("run.resume=out")[0] == 0


def test_sweep_is_resumed_by_its_folder_only(run, folder):
    for named in ("auto", "elsewhere"):
        assert run("-m", *FEW, f"run.resume={named}", "seed=0,1") == (
            1,
            f"error: run.resume: {named} is not the folder of a sweep; with -m, give one that odt-sim run -m created\n",
        )


def test_run_of_another_process_is_left_alone(run, folder):
    assert run(*AUTO)[0] == 1
    [path] = runs(folder)
    before = contents(folder)
    results = []
    with locked(path, pytest.fail):
        thread = Thread(target=lambda: results.append(run(*AUTO)))
        thread.start()
        thread.join()
    [(code, error)] = results
    assert code == 1
    assert f"error: {path}: in use by another process;" in error
    assert contents(folder) == before
