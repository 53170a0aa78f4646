"""`odt-sim deploy`, from the run's folder to the files."""

import json
import re
import shutil

import numpy as np
import pytest

from odt_sim import Device, Results, TrainableModel
from odt_sim.errors import CheckpointError, ConfigurationError, StrategyError

RUN = ("model=digits_mlp", "backend=serial", "fleet.devices=4", "fleet.unseen=1", "train.learning_rate=0.1")

NOT_COMPLETE = "error: mine: the run is not complete; resume it with run.resume=mine, or run it again\n"


def record_of(folder, device):
    lines = (folder / "devices.jsonl").read_text().splitlines()
    return next(record for record in map(json.loads, lines) if record["device"] == device)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fedper", "ditto", "fedavg_finetune"])
def test_files_of_every_device_are_written_and_measured(odt_sim, run, folder, strategy):
    assert run(*RUN, f"strategy={strategy}", "run.rounds=3", "hydra.run.dir=mine")[0] == 0
    code, output, errors = odt_sim("deploy", "mine", "--all")
    assert (code, errors) == (0, "")
    for device in range(4):
        accuracy = record_of(folder / "mine", device)["accuracy"]
        for name in (f"device_{device}.tflite", f"device_{device}_infer_float32.tflite"):
            [line] = [line for line in output.splitlines() if line.split()[:1] == [name]]
            assert line.split()[2] == f"{accuracy:.4f}"
    assert len(list((folder / "mine" / "deploy").iterdir())) == 4 * 4 + 1


@pytest.mark.slow
def test_device_and_global_models_are_written(odt_sim, run, folder):
    assert run(*RUN, "strategy=fedavg", "run.rounds=2", "hydra.run.dir=mine")[0] == 0
    code, output, _ = odt_sim("deploy", "mine", "--device", "2", "--format", "float16", "-o", "phones")
    assert code == 0
    assert {path.name for path in (folder / "phones").iterdir()} == {
        "device_2.tflite",
        "device_2_infer_float16.tflite",
        "files.csv",
    }
    assert "phones/files.csv" in output
    model = TrainableModel.load(folder / "phones" / "device_2.tflite")
    assert Results.load("mine").device(2).model().content == model.content
    x, y = ([[[[0.5]] * 8] * 8], [3])
    assert Device(model, (x, y)).train(1).shape == (1,)
    code, *_ = odt_sim("deploy", "mine", "--global", "--format")
    assert code == 0
    assert (folder / "mine" / "deploy" / "global.tflite").read_bytes() == Results.load("mine").model().content
    assert odt_sim("deploy", "mine", "--new")[0] == 0
    assert (folder / "mine" / "deploy" / "new.tflite").read_bytes() == Results.load("mine").model().content
    code, _, errors = odt_sim("deploy", "mine", "--new", "--format", "int8")
    assert (code, errors) == (
        1,
        "error: --format: does not apply to --new, whose model is for training on the phone; leave it out\n",
    )
    code, _, errors = odt_sim("deploy", "mine", "--user", "4")
    assert (code, errors) == (1, "error: --user: expected a run whose data has user ids, found '4'; or use --device\n")
    code, _, errors = odt_sim("deploy", "mine", "--device", "4")
    assert (code, errors) == (1, "error: device 4: expected an id from 0 to 3\n")


def test_int8_file_of_a_private_model_is_not_covered_by_epsilon(odt_sim, run, folder):
    """Its ranges are those of the users' examples."""
    private = ("aggregator=differential_privacy", "run.rounds=1", "hydra.run.dir=mine")
    assert run(*RUN, *private)[0] == 0
    _, output, _ = odt_sim("deploy", "mine", "--global", "--format", "int8")
    assert (
        "privacy: the ranges in the int8 file come from the devices' training examples, which epsilon does not"
        in output
    )
    _, output, _ = odt_sim("deploy", "mine", "--global", "--format", "float32")
    assert "privacy:" not in output


def test_files_are_measured_by_metrics_of_the_user(odt_sim, run, folder):
    (folder / "margins.py").write_text(
        "def span(outputs, targets):\n    return float(outputs.max() - outputs.min())\n\n\n"
        "def never(outputs, targets):\n    return None if len(targets) < 500 else 1.0\n"
    )
    own = ("metrics=[margins.span,margins.never]", "run.metric=span", "strategy=fedavg", "run.rounds=1")
    assert run(*RUN, *own, "hydra.run.dir=mine")[0] == 0
    code, output, _ = odt_sim("deploy", "mine", "--device", "1", "--format")
    assert code == 0
    header, line = (line.split() for line in output.splitlines()[1:3])
    assert header[:5] == ["file", "bytes", "span", "loss", "never"]
    assert line[4] == "–"
    assert float(line[2]) == pytest.approx(record_of(folder / "mine", 1)["span"], abs=1e-4)


def test_data_that_has_moved_is_found_and_other_data_is_refused(odt_sim, run, folder):
    generator, y = np.random.default_rng(0), np.arange(60, dtype=np.int32) % 10
    np.savez("few.npz", x=generator.random((60, 8, 8, 1), np.float32), y=y)
    own = ("data=npz", "data.path=few.npz", "partition=iid")
    assert run(*RUN, *own, "strategy=fedavg", "run.rounds=1", "hydra.run.dir=mine")[0] == 0
    (folder / "moved").mkdir()
    (folder / "few.npz").rename("moved/few.npz")
    code, _, errors = odt_sim("deploy", "mine", "--device", "0", "--format")
    assert (code, errors) == (1, "error: data few.npz: no such file; give the path of an .npz file\n")
    code, _, errors = odt_sim("deploy", "mine", "data.path=moved/few.npz", "--device", "0", "--format")
    assert (code, errors) == (0, "")
    (folder / "moved" / "few.npz").rename("moved/renamed.npz")
    code, _, errors = odt_sim("deploy", "mine", "--device", "0", "--format", "data.path=moved/renamed.npz")
    assert (code, errors) == (0, "")
    np.savez("few.npz", x=np.zeros((60, 8, 8, 1), np.float32), y=y)
    code, _, errors = odt_sim("deploy", "mine", "--device", "0", "--format")
    assert code == 1
    assert re.match("error: .*: belongs to a run with data few [0-9a-f]+, but this run has ", errors), errors
    code, _, errors = odt_sim("deploy", "mine", "strategy=local", "--device", "0")
    assert (code, errors) == (
        1,
        "error: strategy=local: expected a setting of the run's data, such as data.path=...\n",
    )
    for override in ("data.path=few.npz,moved/renamed.npz", "~data.path"):
        code, _, errors = odt_sim("deploy", "mine", override, "--device", "0")
        assert (code, errors) == (1, f"error: {override}: expected KEY=VALUE, with one value\n")


@pytest.mark.slow
def test_several_runs_are_named(odt_sim, run, folder):
    for name in ("a", "b"):
        assert run(*RUN, "strategy=fedper", "run.rounds=1", f"hydra.run.dir=both/{name}")[0] == 0
    code, _, errors = odt_sim("deploy", "both", "--all")
    assert (code, errors) == (1, "error: both: expected one run, found 2; choose one of both/a, both/b\n")
    results = Results.load("both")
    with pytest.raises(
        ConfigurationError, match=r"^odt_sim.Results: expected one run, found 2; choose one of both/a, both/b$"
    ):
        results.device(0)
    with pytest.raises(StrategyError, match=r"^both/a: has no global model"):
        Results.load("both/a").model()


@pytest.mark.parametrize("content", [None, "[", "a: 1"])
def test_folder_without_an_intact_configuration_is_refused(odt_sim, folder, content):
    (folder / "mine").mkdir()
    (folder / "mine" / "rounds.jsonl").touch()
    if content is not None:
        (folder / "mine" / ".hydra").mkdir()
        (folder / "mine" / ".hydra" / "config.yaml").write_text(content)
    code, _, errors = odt_sim("deploy", "mine", "--device", "0")
    assert code == 1
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert not (folder / "mine" / "deploy").exists()


def test_model_of_a_user_is_that_of_the_users_device(odt_sim, run, folder):
    generator, users = np.random.default_rng(0), np.repeat(["anna", "ben", "cem"], 20)
    np.savez("own.npz", x=generator.random((60, 8, 8, 1), np.float32), y=np.arange(60) % 10, writer=users)
    data = ("data=npz", "data.path=own.npz", "data.users=writer", "partition=by_user", "fleet.unseen=0")
    settings = [each for each in RUN if not each.startswith("fleet.")]
    assert run(*settings, *data, "fleet.devices=null", "strategy=local", "run.rounds=1", "hydra.run.dir=mine")[0] == 0
    assert odt_sim("deploy", "mine", "--user", "ben", "--format")[0] == 0
    assert (folder / "mine" / "deploy" / "device_1.tflite").exists()
    code, _, errors = odt_sim("deploy", "mine", "--user", "dora", "--format")
    expected = "--user: expected one of anna, ben, cem, found 'dora'; or use --device"
    assert (code, errors) == (1, f"error: {expected}\n")


def test_run_without_examples_or_a_summary_is_refused(odt_sim, run, folder):
    assert run(*RUN, "strategy=fedavg", "run.rounds=1", "hydra.run.dir=mine")[0] == 0
    config = folder / "mine" / ".hydra" / "config.yaml"
    saved = config.read_text()
    config.write_text(saved.replace("backend:\n", "backend:\n  examples: own\n"))
    code, _, errors = odt_sim("deploy", "mine", "--device", "0")
    assert (code, errors.partition(",")[0]) == (1, "error: mine: its phones kept their examples")
    config.write_text(saved)
    (folder / "mine" / "summary.json").unlink()
    code, _, errors = odt_sim("deploy", "mine", "--device", "0")
    assert (code, errors) == (1, NOT_COMPLETE)
    assert not (folder / "mine" / "deploy").exists()


def test_run_that_failed_at_its_data_is_not_complete(odt_sim, run, folder):
    assert run(*RUN, "strategy=fedavg", "data=npz", "data.path=missing.npz", "hydra.run.dir=mine")[0] == 1
    for chosen in (["--global"], ["--device", "0"], ["--all"]):
        code, _, errors = odt_sim("deploy", "mine", *chosen)
        assert (code, errors) == (1, NOT_COMPLETE)
    with pytest.raises(CheckpointError, match=r"^mine: the run is not complete; resume it"):
        Results.load("mine").device(0).model()


def test_run_started_from_python_is_deployed_without_its_data(odt_sim, run, folder):
    assert run(*RUN, "strategy=fedavg", "run.rounds=1", "hydra.run.dir=mine")[0] == 0
    shutil.rmtree(folder / "mine" / ".hydra")
    for chosen, files in (("--global", 3), ("--new", 4)):
        code, output, errors = odt_sim("deploy", "mine", chosen)
        assert (code, errors) == (0, "")
        assert "not measured: the run was started from Python" in output
        assert len([*(folder / "mine" / "deploy").glob("*.tflite")]) == files
    code, _, errors = odt_sim("deploy", "mine", "--device", "0")
    assert (code, errors.count("\n")) == (1, 1)
