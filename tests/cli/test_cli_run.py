"""A run by the command: its records, its output and its warnings."""

import fcntl
import json
import os
import re
import sys

import numpy as np
import pytest
from commands import FEW, lines, runs
from omegaconf import OmegaConf

from odt_sim._support.user_code import exits_are_errors, user_code_errors
from odt_sim.errors import ConfigurationError
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.persistence.storage import LOCK

CONTROL = re.compile(r"[^\n -~│━╸╺–±…·]")


# --- a run ------------------------------------------------------------------------------------------------------------


def test_run_leaves_its_records_and_prints_the_comparison(odt_sim, folder):
    code, out, err = odt_sim("run", "strategy=fedper", "seed=3", *FEW)
    assert code == 0
    [run] = runs(folder)
    left = {path.name for path in run.iterdir()}
    records = {"initial.tflite", "rounds.jsonl", "devices.jsonl", "summary.json", "code.json", "checkpoint", ".lock"}
    assert left == records | {"report.html", "comparison.json", "figures", ".hydra"}
    assert (len(lines(run / "rounds.jsonl")), len(lines(run / "devices.jsonl"))) == (2, 4)
    assert "fedper" in out
    assert out.rstrip().endswith(f"report: {run / 'report.html'}")
    assert re.match(r"fedper \S+ .*2/2 0:00:\d\d accuracy 0\.\d{3}  train loss [\d.]+\s*$", err.splitlines()[-1])
    assert not CONTROL.search(out + err), CONTROL.findall(out + err)
    saved = {path.stem: OmegaConf.load(path) for path in (run / ".hydra").iterdir()}
    assert saved.keys() == {"config", "hydra", "overrides"}
    assert (saved["config"].seed, saved["config"].fleet.devices) == (3, 4)
    assert list(saved["overrides"])[:2] == ["strategy=fedper", "seed=3"]
    assert saved["hydra"].hydra.runtime.choices.strategy == "fedper"


@pytest.mark.parametrize("width", [40, 80])
def test_lines_fit_the_terminal_and_name_the_strategy(odt_sim, folder, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, err = odt_sim("run", "strategy=fedavg_finetune", "strategy.max_epochs=1", *FEW)
    table = out.partition("\nreport: ")[0]
    assert max(len(line) for line in (table + err).splitlines()) <= width
    assert "fedavg_finetune" in table
    assert "fedavg_finetune" in err


def test_runs_of_the_same_second_have_their_own_folders(run, folder):
    for _ in range(2):
        assert run("strategy=local", *FEW, "train.epochs=0", "run.rounds=1")[0] == 0
    assert len(runs(folder)) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["run.until=plateau", "split.validation=0"],
            r"^error: run\.until: uses validation examples, but no device",
        ),
        (
            ["run.until=plateau", "arrival=in_order"],
            r"^error: run\.until: uses .*, which runs with arrival do not have",
        ),
        (
            ["-m", "hydra/sweeper=random", "hydra.sweeper.n_trials=1", "train.epochs=1,2", "split.validation=0"],
            r"^failed .*: hydra/sweeper: uses validation examples, but no device",
        ),
    ],
)
def test_what_decides_by_validation_is_refused_without_it(run, folder, given, message):
    code, err = run("strategy=local", *FEW, *given)
    assert code == 1
    assert re.search(message, err, re.M), err


def test_folder_of_a_run_is_refused_and_stays_as_it_is(run, folder):
    assert run("strategy=local", *FEW, "hydra.run.dir=here")[0] == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, err = run("strategy=fedavg", *FEW, "hydra.run.dir=here")
    assert code == 1
    assert re.search(
        r"^error: \S+here: already contains a run; resume it with run\.resume=\S+, or choose another", err, re.M
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_folder_of_a_run_that_failed_at_once_can_be_used_again(run, folder, monkeypatch):
    """The failure is recorded while the folder is locked."""
    write = RunFolder.write_failure

    def write_failure(records, *given, **kind):
        with (records.path / LOCK).open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write(records, *given, **kind)

    monkeypatch.setattr(RunFolder, "write_failure", write_failure)
    assert run(*FEW, "hydra.run.dir=here", "fleet.cohort=9")[0] == 1
    failure = json.loads((folder / "here" / "failure.json").read_text())
    assert failure["error"].startswith("fleet.cohort: expected 1 to 3")
    assert not failure["transient"]
    assert run(*FEW, "hydra.run.dir=here")[0] == 0
    assert not (folder / "here" / "failure.json").exists()


def test_failure_that_cannot_be_recorded_is_printed(run, folder):
    code, err = run(*FEW, "strategy._target_=mine.Occupies", "hydra.run.dir=here")
    assert code == 1
    assert "RuntimeError: the reason" in err.splitlines()[-1]


def test_folder_that_cannot_be_made_is_named(odt_sim, monkeypatch):
    monkeypatch.chdir("/proc")
    code, out, err = odt_sim("run", *FEW)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"error: \S+: cannot create the run's folder \(.+\); choose a writable one.*\n", err)


def test_exit_in_a_module_of_the_user_is_one_line(run, folder):
    (folder / "exits.py").write_text("import sys; sys.exit(3)")
    code, err = run(*FEW, "strategy._target_=exits.X")
    assert (code, err.splitlines()[-1]) == (1, "error: user code called sys.exit(3); remove the call")


def test_exit_in_user_code_is_one_line(run, folder):
    code, err = run(*FEW, "strategy._target_=mine.Exits", "hydra.run.dir=here")
    assert code == 1
    assert "no reason" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert "no reason" in json.loads((folder / "here" / "failure.json").read_text())["error"]


def test_exit_of_a_signal_handler_of_submitit_passes():
    handler = {"__name__": "submitit.core.job_environment", "sys": sys}
    exec("def end(): sys.exit(-1)", handler)
    with pytest.raises(SystemExit), exits_are_errors(), user_code_errors(len, "strategy: failed", ConfigurationError):
        handler["end"]()


# --- strategies and configurations of a user ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["serial", pytest.param("ray", marks=pytest.mark.slow)])
def test_strategy_is_found_in_the_working_folder(run, folder, backend):
    code, err = run(*FEW, f"backend={backend}", "strategy._target_=mine.Halfway")
    assert code == 0, err
    [path] = runs(folder)
    assert json.loads((path / "summary.json").read_text())["strategy"] == "Halfway"
    assert err.splitlines()[-1].startswith("Halfway model=digits_mlp")
    here = {row["process"] for row in lines(path / "devices.jsonl")} == {os.getpid()}
    assert here == (backend == "serial")


@pytest.mark.parametrize("given", [["--config-dir", "my"], ["hydra.searchpath=[file://my]"]])
def test_folder_of_configurations_is_used_and_resumed(run, folder, given):
    (folder / "my" / "strategy").mkdir(parents=True)
    (folder / "my" / "strategy" / "halfway.yaml").write_text("_target_: mine.FailsOnce\n")
    code, err = run(*given, "strategy=halfway", *FEW, "hydra.run.dir=out")
    assert code == 1
    assert "failed in aggregate in round 2 with RuntimeError: once" in err
    assert "Traceback (most recent call last):" in err  # FEW has backend=serial
    code, err = run("run.resume=out")
    assert code == 0, err
    assert [row["round"] for row in lines(folder / "out" / "rounds.jsonl")] == [1, 2]
    assert not (folder / "out" / "failure.json").exists()


# --- what a run warns of ----------------------------------------------------------------------------------------------


def test_examples_shared_by_parts_are_counted(run, folder):
    """Each device has ten pairs of twins, and blocks of 12, 4 and 4 examples end between two pairs."""
    x, y = np.random.default_rng(0).random((30, 8, 8, 1), np.float32), np.arange(30) % 10
    np.savez("twins.npz", x=np.repeat(x, 2, axis=0), y=np.repeat(y, 2), writer=np.arange(60) // 20)
    given = ["data=npz", "data.path=twins.npz", "data.users=writer", "partition=by_user", "fleet.devices=null"]
    code, err = run(*FEW, *given, "split.method=random", "hydra.run.dir=out")
    [(warned, evaluated, equal)] = re.findall(
        r"^(warning) data twins: of (\d+) .* examples, (\d+) are equal to", err, re.M
    )
    assert (code, warned, int(evaluated)) == (0, "warning", 24)
    assert int(equal) > 6
    assert [row["user"] for row in lines(folder / "out" / "devices.jsonl")] == [0, 1, 2]
    code, err = run(*FEW, *given, "split.method=block", "split.gap=0")
    assert (code, "warning" in err) == (0, False)


# --- excluded devices ----------------------------------------------------------------------------------------


def test_diverging_device_is_excluded_and_named(run, folder):
    random = np.random.default_rng(0)
    x, users = random.random((90, 8, 8, 1), np.float32), np.arange(90) % 3
    x[users == 2] *= 1e30
    np.savez("data.npz", x=x, y=np.arange(90) // 9, writer=users)
    given = ["data=npz", "data.path=data.npz", "data.users=writer", "partition=by_user", "fleet.unseen=0"]
    code, err = run(*FEW, *given, "fleet.devices=null", "strategy=fedavg")
    assert code == 0
    assert re.search(r"2/2 .*  1 excluded ", err, re.M)
    named = "excluded device 2 (loss not finite in 2 rounds); see rounds.jsonl\n"
    assert err.endswith(named)
    [path] = runs(folder)
    assert [(row["excluded"], row["excluded_devices"]) for row in lines(path / "rounds.jsonl")] == [(1, [2])] * 2
    summary = json.loads((path / "summary.json").read_text())
    assert (summary["excluded"], summary["excluded_reasons"]) == (2, [["loss not finite", 2]])


def test_run_ends_when_all_devices_diverge(run, folder):
    code, err = run(*FEW, "train.learning_rate=1e38", "train.epochs=5")
    assert code == 1
    assert re.search(
        r"^error: round 1: 0 devices contributed, fleet\.min_devices is 1; left out 3 \(.* not finite on", err, re.M
    )
