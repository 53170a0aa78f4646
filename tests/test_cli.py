"""The command, as a user types it; in this process where nothing else is asked for."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from safetensors.numpy import load_file

from odt_sim import TrainableModel
from odt_sim.cli import main

FEW = ["model=digits_mlp", "backend=serial", "run.rounds=2", "fleet.devices=4", "fleet.unseen=1"]
COMMAND = [sys.executable, "-c", "import sys; from odt_sim.cli import main; sys.exit(main())"]
CONTROL = re.compile(r"[^\n -~│━╸╺–±…·]")

MINE = """
import os
from pathlib import Path

from hydra.experimental.callback import Callback
from odt_sim import Strategy

class Tell(Callback):
    def on_job_end(self, config, job_return, **kwargs):
        with open("told", "a") as file:
            print(job_return.return_value, file=file)


class Halfway(Strategy):
    def deploy(self, device, broadcast):
        before = super().deploy(device, broadcast)
        device.train(epochs=1)
        device.records["process"] = os.getpid()
        return 0.5 * (before + device.parameters())


class Surprises(Strategy):
    def check(self, model):
        raise AttributeError("a bug")


class FailsOnce(Strategy):
    def aggregate(self, state, updates):
        if not Path("failed").exists() and Path("almost").exists():
            Path("failed").touch()
            raise RuntimeError("once")
        Path("almost").touch()
        return super().aggregate(state, updates)
"""


@pytest.fixture
def odt_sim(capsys):
    """Returns a function that runs the command in this process: exit code, standard output, standard error."""

    def run(*arguments):
        code = main(list(arguments))
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(tmp_path, monkeypatch, digits_mlp):
    """A working folder with strategies of the user's own; the model is exported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("mine", None)


def runs(folder):
    return sorted({path.parent for path in folder.rglob("rounds.jsonl")})


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- calling it --------------------------------------------------------------------------------------------------------


def test_the_version(odt_sim):
    code, out, _ = odt_sim("--version")
    assert code == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", out)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_the_commands(odt_sim, flag):
    code, out, err = odt_sim(flag)
    assert (code, err) == (0, "")
    assert all(f"\n  {command} " in out for command in ("run", "report", "export", "inspect"))


@pytest.mark.parametrize("arguments", [[], ["train"], ["-x"]])
def test_a_wrong_call_shows_the_usage(odt_sim, arguments):
    code, out, err = odt_sim(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: odt-sim COMMAND")


@pytest.mark.parametrize("arguments", [["report"], ["inspect"], ["inspect", "a", "b"], ["run", "--no-such-flag"]])
def test_a_wrong_call_of_a_command(odt_sim, arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        odt_sim(*arguments)
    assert caught.value.code == 2
    assert "usage: odt-sim" in capsys.readouterr().err


def test_the_configuration_is_printed_and_nothing_is_run(odt_sim, folder):
    code, out, _ = odt_sim("run", "--cfg", "job", "strategy=fedper", "fleet.cohort=3")
    assert code == 0
    assert "odt_sim.strategies.fedper.FedPer" in out
    assert "cohort: 3" in out
    assert runs(folder) == []


def test_the_command_is_installed():
    found = shutil.which("odt-sim", path=str(Path(sys.executable).parent))
    assert found
    assert subprocess.run([found, "--version"], capture_output=True, check=True, timeout=60).stdout


# --- a run -------------------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_records_and_prints_the_comparison(odt_sim, folder):
    code, out, err = odt_sim("run", "strategy=fedper", *FEW)
    assert code == 0
    [run] = runs(folder)
    left = {path.name for path in run.iterdir()}
    records = {"model.tflite", "rounds.jsonl", "devices.jsonl", "summary.json", "checkpoint"}
    assert left == records | {"report.html", "comparison.json", "figures", ".hydra"}
    assert (len(lines(run / "rounds.jsonl")), len(lines(run / "devices.jsonl"))) == (2, 4)
    assert "fedper" in out
    assert out.rstrip().endswith(f"report: {run / 'report.html'}")
    assert re.match(r"fedper model=\S+ .*2/2 0:00:\d\d train loss [\d.]+  accuracy 0\.\d{3}\s*$", err.splitlines()[-1])


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
        r"^error: \S+here: holds a run already; go on with it by run\.resume=\S+, or choose another", err, re.M
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_folder_where_a_run_failed_at_once_can_be_used_again(odt_sim, folder):
    assert odt_sim("run", *FEW, "hydra.run.dir=here", "fleet.cohort=9")[0] == 1
    assert json.loads((folder / "here" / "failure.json").read_text())["error"].startswith(
        "fleet.cohort: expected 1 to 3"
    )
    assert odt_sim("run", *FEW, "hydra.run.dir=here")[0] == 0
    assert not (folder / "here" / "failure.json").exists()


def test_a_folder_that_cannot_be_written(odt_sim, monkeypatch):
    monkeypatch.chdir("/proc")
    code, out, err = odt_sim("run", *FEW)
    assert (code, out) == (1, "")
    assert re.fullmatch(
        r"error: \S+: cannot make the run's folder \(.+\); go to a folder that you may write to.*\n", err
    )


# --- strategies, configurations of the user's own ----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["serial", "ray"])
def test_a_strategy_in_a_file_of_the_working_folder(odt_sim, folder, backend):
    code, _, err = odt_sim("run", *FEW, f"backend={backend}", "strategy._target_=mine.Halfway")
    assert code == 0, err
    [run] = runs(folder)
    assert json.loads((run / "summary.json").read_text())["strategy"] == "Halfway"
    assert err.splitlines()[-1].startswith("Halfway model=digits_mlp")
    here = {row["process"] for row in lines(run / "devices.jsonl")} == {os.getpid()}
    assert here == (backend == "serial")


def test_a_job_tells_a_sweeper_its_validation_figure(odt_sim, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    code, _, err = odt_sim("run", "-m", *FEW, "fleet.cohort=3,9", "+hydra.callbacks.tell._target_=mine.Tell")
    assert (code, "failed" in err) == (1, True)
    told, failed = (float(line) for line in (folder / "told").read_text().splitlines())
    (summary,) = (json.loads(path.read_text()) for path in folder.rglob("summary.json"))
    assert told == summary["metrics_validation"]["accuracy"]["weighted_mean"] > 0
    assert np.isnan(failed)


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


# --- going on ----------------------------------------------------------------------------------------------------------


def test_a_failed_run_goes_on_by_its_folder_alone(odt_sim, folder):
    given = ["strategy._target_=mine.FailsOnce", *FEW, "run.rounds=3", "seed=5"]
    assert odt_sim("run", *given, "hydra.run.dir=out")[0] == 1
    kept = (folder / "out" / ".hydra" / "config.yaml").read_bytes()
    assert [row["round"] for row in lines(folder / "out" / "rounds.jsonl")] == [1]
    assert odt_sim("run", "run.resume=out")[0] == 0
    assert json.loads((folder / "out" / "summary.json").read_text())["seed"] == 5
    assert (folder / "out" / ".hydra" / "config.yaml").read_bytes() == kept
    assert odt_sim("run", *given, "hydra.run.dir=whole")[0] == 0
    assert (folder / "out" / "devices.jsonl").read_bytes() == (folder / "whole" / "devices.jsonl").read_bytes()
    ended = [load_file(folder / name / "checkpoint" / "server.safetensors") for name in ("out", "whole")]
    np.testing.assert_equal(*ended)


def test_another_run_is_not_gone_on_with_and_nothing_is_touched(odt_sim, folder):
    odt_sim("run", "strategy._target_=mine.FailsOnce", *FEW, "hydra.run.dir=out")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, err = odt_sim("run", "run.resume=out", "seed=7")
    assert code == 1
    assert re.search(
        r"^error: \S+server\.safetensors: of a run with seed 0, this one has 7; resume with the same", err, re.M
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


# --- sweeps ------------------------------------------------------------------------------------------------------------


def test_a_sweep_compares_its_jobs_and_names_the_failed_one(odt_sim, folder):
    code, out, err = odt_sim("run", "-m", "strategy=fedavg,fedper", "train.learning_rate=-1,0.1", *FEW)
    assert code == 1
    [sweep] = {run.parent for run in runs(folder)}
    assert [run.name for run in runs(folder)] == ["1", "3"]
    message = r"train\.learning_rate: expected a number above 0, found -1"
    assert len(re.findall(rf"^failed strategy=fed\w+, train\.learning_rate=-1, .*: {message}", err, re.M)) == 2
    failed = out[out.index("failed") :]
    assert len(re.findall(r"failed\s+fed\w+", failed)) == 2
    assert re.search(message, " ".join(failed.split()))
    assert f"report: {sweep.relative_to(folder)}/report.html" in out


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


# --- other commands ----------------------------------------------------------------------------------------------------


def test_a_report_is_rebuilt_from_what_is_on_disk(odt_sim, folder):
    for strategy in ("local", "fedper"):
        odt_sim("run", f"strategy={strategy}", *FEW, f"hydra.run.dir=runs/{strategy}")
    code, out, _ = odt_sim("report", "runs")
    assert code == 0
    assert re.search(r"^local ", out, re.M)
    assert re.search(r"^fedper ", out, re.M)
    assert (folder / "runs" / "report.html").exists()
    assert odt_sim("report", "runs/local", "runs/fedper", "-o", "page.html")[0] == 0
    assert (folder / "page.html").exists()
    code, out, _ = odt_sim("report", "runs", "--best", "--against", "local", "--target", "0.01")
    assert code == 0
    assert "Against local, device by device" in out
    assert json.loads((folder / "runs" / "comparison.json").read_text())["target"] == 0.01
    code, _, err = odt_sim("report", "runs", "--against", "ditto")
    assert (code, err) == (1, "error: --against: expected one of fedper, local, found 'ditto'\n")


def test_a_report_of_nothing(odt_sim, folder):
    code, _, err = odt_sim("report", ".")
    assert (code, err) == (1, "error: .: no run found there; give a run's folder, or one that holds runs\n")


def test_a_model_of_any_number_of_rows_says_so(odt_sim, folder, any_rows):
    Path("any.tflite").write_bytes(any_rows.content)
    code, out, _ = odt_sim("inspect", "any.tflite")
    assert code == 0
    assert "batches of any size, 32 by default" in out
    assert "x float32[?, 6]" in out


def test_a_model_is_exported_and_inspected(odt_sim, folder, digits_mlp):
    code, out, _ = odt_sim("export", "model=digits_mlp", "-o", "deep/[my].tflite")
    assert code == 0
    assert TrainableModel.load(folder / "deep" / "[my].tflite").fingerprint == digits_mlp.fingerprint
    assert re.match(r"deep/\[my\]\.tflite: [\d,]+ bytes, 4,810 parameters, signatures .*train", out)
    code, out, _ = odt_sim("inspect", "deep/[my].tflite")
    assert code == 0
    assert out.startswith("deep/[my].tflite: ")
    for word in ("Signatures", "sample_weight float32[16]", "dense_0/kernel", "64 x 64", "head", "BATCH_MATMUL"):
        assert word in out, word


def test_an_export_is_named_after_the_model(odt_sim, folder):
    assert odt_sim("export", "model=digits_mlp")[0] == 0
    assert (folder / "digits_mlp.tflite").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "model=tflite", "model.path=x.tflite"], "model: is a .tflite file already; choose a model"),
        (["export", "model=digits_mlp", "-o", "mine.py/x.tflite"], "mine.py/x.tflite: cannot write it (File exists); make"),
        (["export", "modal=digits_mlp"], "Could not override 'modal'"),
        (["inspect", "mine.py"], "mine.py: "),
        (["inspect", "no.tflite"], "no.tflite: cannot read the model (No such file or directory)"),
        (["report", "nowhere"], "nowhere: no run found there"),
    ],
)  # fmt: skip
def test_an_error_is_one_line(odt_sim, folder, arguments, message):
    code, out, err = odt_sim(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {message}")
    assert len(err.splitlines()) == 1


def test_a_reader_that_has_gone_is_no_error(folder, digits_mlp):
    (folder / "model.tflite").write_bytes(digits_mlp.content)
    reading, writing = os.pipe()
    os.close(reading)
    child = subprocess.run([*COMMAND, "inspect", "model.tflite"], stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert child.returncode == 1
    assert child.stderr == b""


# --- what a run warns of -----------------------------------------------------------------------------------------------


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


# --- devices that are left out -----------------------------------------------------------------------------------------


def test_a_device_that_diverges_is_left_out_and_the_run_says_so(odt_sim, folder, digits_mlp):
    random = np.random.default_rng(0)
    x, users = random.random((90, 8, 8, 1), np.float32), np.arange(90) % 3
    x[users == 2] *= 1e30
    np.savez("data.npz", x=x, y=np.arange(90) // 9, writer=users)
    given = ["data=npz", "data.path=data.npz", "data.users=writer", "partition=by_user", "fleet.unseen=0"]
    code, _, err = odt_sim("run", *FEW, *given, "fleet.devices=null", "strategy=fedavg")
    assert code == 0
    assert re.search(r"2/2 .*  1 left out\s*$", err, re.M)
    named = (
        "left out losses or weights were not finite on device 2 (2 rounds); rounds.jsonl names them round by round\n"
    )
    assert err.endswith(named)
    [run] = runs(folder)
    assert [(row["excluded"], row["excluded_devices"]) for row in lines(run / "rounds.jsonl")] == [(1, [2])] * 2
    assert json.loads((run / "summary.json").read_text())["excluded"] == 2


def test_when_all_diverge_the_run_ends(odt_sim, folder):
    code, _, err = odt_sim("run", *FEW, "train.learning_rate=1e38", "train.epochs=5")
    assert code == 1
    assert re.search(
        r"^error: round 1: 0 devices contributed, fleet\.min_devices is 1; losses or weights of 3 were", err, re.M
    )
