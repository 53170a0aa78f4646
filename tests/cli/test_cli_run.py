"""A run by the command: what it leaves, prints and warns of."""

import fcntl
import json
import os
import re

import numpy as np
import pytest
from commands import FEW, lines, runs
from omegaconf import OmegaConf

from odt_sim.persistence.lock import LOCK
from odt_sim.persistence.run_folder import RunFolder

CONTROL = re.compile(r"[^\n -~│━╸╺–±…·]")


# --- a run ------------------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_records_and_prints_the_comparison(odt_sim, folder):
    code, out, err = odt_sim("run", "strategy=fedper", *FEW)
    assert code == 0
    [run] = runs(folder)
    left = {path.name for path in run.iterdir()}
    records = {"initial.tflite", "rounds.jsonl", "devices.jsonl", "summary.json", "checkpoint", ".lock"}
    assert left == records | {"report.html", "comparison.json", "figures", ".hydra"}
    assert (len(lines(run / "rounds.jsonl")), len(lines(run / "devices.jsonl"))) == (2, 4)
    assert "fedper" in out
    assert out.rstrip().endswith(f"report: {run / 'report.html'}")
    assert re.match(r"fedper model=\S+ .*2/2 0:00:\d\d accuracy 0\.\d{3}  train loss [\d.]+\s*$", err.splitlines()[-1])


def test_the_configuration_is_kept_as_hydra_keeps_it(odt_sim, folder):
    odt_sim("run", "strategy=fedper", "seed=3", *FEW)
    kept = {path.stem: OmegaConf.load(path) for path in (runs(folder)[0] / ".hydra").iterdir()}
    assert kept.keys() == {"config", "hydra", "overrides"}
    assert (kept["config"].seed, kept["config"].fleet.devices) == (3, 4)
    assert list(kept["overrides"])[:2] == ["strategy=fedper", "seed=3"]
    assert kept["hydra"].hydra.runtime.choices.strategy == "fedper"


def test_two_runs_of_the_same_second_have_folders_of_their_own(odt_sim, folder):
    for _ in range(2):
        assert odt_sim("run", "strategy=local", *FEW, "train.epochs=0", "run.rounds=1")[0] == 0
    assert len(runs(folder)) == 2


def test_what_goes_into_a_file_holds_no_control_characters(odt_sim, folder):
    _, out, err = odt_sim("run", "strategy=local", *FEW)
    assert not CONTROL.search(out + err), CONTROL.findall(out + err)


def test_lines_fit_a_terminal_of_80_columns(odt_sim, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, err = odt_sim("run", "strategy=fedavg_finetune", "strategy.max_epochs=1", *FEW)
    table = out.partition("\nreport: ")[0]
    assert max(len(line) for line in (table + err).splitlines()) <= 80
    assert "fedavg_finetune" in table


def test_a_folder_that_holds_a_run_is_refused_untouched(odt_sim, folder):
    assert odt_sim("run", "strategy=local", *FEW, "hydra.run.dir=here")[0] == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, err = odt_sim("run", "strategy=fedavg", *FEW, "hydra.run.dir=here")
    assert code == 1
    assert re.search(
        r"^error: \S+here: holds a run already; resume it with run\.resume=\S+, or choose another", err, re.M
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_folder_where_a_run_failed_at_once_can_be_used_again(odt_sim, folder):
    assert odt_sim("run", *FEW, "hydra.run.dir=here", "fleet.cohort=9")[0] == 1
    assert json.loads((folder / "here" / "failure.json").read_text())["error"].startswith(
        "fleet.cohort: expected 1 to 3"
    )
    assert odt_sim("run", *FEW, "hydra.run.dir=here")[0] == 0
    assert not (folder / "here" / "failure.json").exists()


def test_why_a_run_failed_is_recorded_while_its_folder_is_locked(odt_sim, folder, monkeypatch):
    write = RunFolder.write_failure

    def write_failure(records, *given):
        with (records.path / LOCK).open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write(records, *given)

    monkeypatch.setattr(RunFolder, "write_failure", write_failure)
    assert odt_sim("run", *FEW, "hydra.run.dir=here", "fleet.cohort=9")[0] == 1
    assert (folder / "here" / "failure.json").exists()


def test_why_a_run_failed_is_told_though_its_folder_takes_no_file_any_more(odt_sim, folder):
    code, _, err = odt_sim("run", *FEW, "strategy._target_=mine.Occupies", "hydra.run.dir=here")
    assert code == 1
    assert "failed in aggregate in round 1 with RuntimeError: told" in err.splitlines()[-1]


def test_a_folder_that_cannot_be_written(odt_sim, monkeypatch):
    monkeypatch.chdir("/proc")
    code, out, err = odt_sim("run", *FEW)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"error: \S+: cannot make the run's folder \(.+\); use a writable folder.*\n", err)


# --- strategies, configurations of the user's own ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["serial", "ray"])
def test_a_strategy_in_a_file_of_the_working_folder(odt_sim, folder, backend):
    code, _, err = odt_sim("run", *FEW, f"backend={backend}", "strategy._target_=mine.Halfway")
    assert code == 0, err
    [run] = runs(folder)
    assert json.loads((run / "summary.json").read_text())["strategy"] == "Halfway"
    assert err.splitlines()[-1].startswith("Halfway model=digits_mlp")
    here = {row["process"] for row in lines(run / "devices.jsonl")} == {os.getpid()}
    assert here == (backend == "serial")


def test_a_folder_of_configurations_of_the_users_own(odt_sim, folder):
    (folder / "my" / "strategy").mkdir(parents=True)
    (folder / "my" / "strategy" / "halfway.yaml").write_text("_target_: mine.FailsOnce\n")
    code, _, err = odt_sim("run", "--config-dir", "my", "strategy=halfway", *FEW, "hydra.run.dir=out")
    assert code == 1
    assert "failed in aggregate in round 2 with RuntimeError: once" in err
    code, _, err = odt_sim("run", "run.resume=out")
    assert code == 0, err
    assert [row["round"] for row in lines(folder / "out" / "rounds.jsonl")] == [1, 2]
    assert not (folder / "out" / "failure.json").exists()


# --- what a run warns of ----------------------------------------------------------------------------------------------


def test_examples_that_parts_share_are_counted(odt_sim, folder):
    """Each device has ten pairs of twins, and blocks of 12, 4 and 4 examples end between two pairs."""
    x, y = np.random.default_rng(0).random((30, 8, 8, 1), np.float32), np.arange(30) % 10
    np.savez("twins.npz", x=np.repeat(x, 2, axis=0), y=np.repeat(y, 2), writer=np.arange(60) // 20)
    given = ["data=npz", "data.path=twins.npz", "data.users=writer", "partition=by_user", "fleet.devices=null"]
    code, _, err = odt_sim("run", *FEW, *given, "split.method=random")
    [(warned, evaluated, equal)] = re.findall(
        r"^(warning) data twins: of (\d+) .* examples (\d+) are equal to", err, re.M
    )
    assert (code, warned, int(evaluated)) == (0, "warning", 24)
    assert int(equal) > 6
    code, _, err = odt_sim("run", *FEW, *given, "split.method=block", "split.gap=0")
    assert (code, "warning" in err) == (0, False)


# --- devices that are left out ----------------------------------------------------------------------------------------


def test_a_device_that_diverges_is_left_out_and_the_run_says_so(odt_sim, folder, digits_mlp):
    random = np.random.default_rng(0)
    x, users = random.random((90, 8, 8, 1), np.float32), np.arange(90) % 3
    x[users == 2] *= 1e30
    np.savez("data.npz", x=x, y=np.arange(90) // 9, writer=users)
    given = ["data=npz", "data.path=data.npz", "data.users=writer", "partition=by_user", "fleet.unseen=0"]
    code, _, err = odt_sim("run", *FEW, *given, "fleet.devices=null", "strategy=fedavg")
    assert code == 0
    assert re.search(r"2/2 .*  1 excluded ", err, re.M)
    named = "excluded device 2 (loss not finite in 2 rounds); see rounds.jsonl\n"
    assert err.endswith(named)
    [run] = runs(folder)
    assert [(row["excluded"], row["excluded_devices"]) for row in lines(run / "rounds.jsonl")] == [(1, [2])] * 2
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["excluded"], summary["excluded_reasons"]) == (2, [["loss not finite", 2]])


def test_when_all_diverge_the_run_ends(odt_sim, folder):
    code, _, err = odt_sim("run", *FEW, "train.learning_rate=1e38", "train.epochs=5")
    assert code == 1
    assert re.search(
        r"^error: round 1: 0 devices contributed, fleet\.min_devices is 1; left out 3 \(.* not finite on", err, re.M
    )
