"""The models of a complete run, and their files."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, Fleet, Results, Strategy, TrainableModel
from odt_sim.cli.commands.deploy import deploy as deploy_command
from odt_sim.data import Dataset, federate, iid
from odt_sim.deploy.models import device_model
from odt_sim.deploy.write import deploy, deploy_new
from odt_sim.device.engines.compiled import CompiledEngine
from odt_sim.device.engines.interpreter import InterpreterEngine
from odt_sim.errors import CheckpointError, ConfigurationError, StrategyError
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.clusters.knn_per import KNNPer
from odt_sim.strategies.shared_parts.fedper import FedPer
from odt_sim.strategies.two_models.ditto import Ditto


@pytest.mark.parametrize(
    "strategy", [FedAvg(), FedPer(), Ditto(), FedAvgFineTune(2), Local()], ids=lambda strategy: strategy.name
)
def test_every_device_scores_its_recorded_figures(
    strategy: Strategy, simulation: Any, small_mlp: TrainableModel, tmp_path: Path
) -> None:
    simulation(strategy, tmp_path, rounds=4, model=small_mlp).run()
    again = simulation(strategy, tmp_path, rounds=4, model=small_mlp)
    records = RunFolder(tmp_path).devices()
    assert [record.seen for record in records].count(False) == 1
    for rows, record in zip(deploy(again, tmp_path / "deploy", range(7), []), records, strict=True):
        [row] = rows
        assert row["file"] == f"device_{record.device}.tflite"
        recorded = {name: record[name] for name in ("examples", "accuracy", "loss", "balanced_accuracy")}
        assert {name: row[name] for name in recorded} == recorded


def test_trainable_file_trains_as_the_device_would(simulation: Any, fleet_data: Any, tmp_path: Path) -> None:
    simulation(FedPer(), tmp_path).run()
    run = simulation(FedPer(), tmp_path)
    [weights] = [device.parameters() for device in run.deployed([2])]
    model = device_model(run, 2)
    x, y = fleet_data.x[fleet_data.train(2)], fleet_data.y[fleet_data.train(2)]
    one, other = Device(model, (x, y)), Device(run.model, (x, y))
    other.restore(weights)
    assert one.weights.vector.tobytes() == weights.vector.tobytes()
    assert one.train(2).tobytes() == other.train(2).tobytes()
    assert one.weights.vector.tobytes() == other.weights.vector.tobytes()


def test_new_user_begins_with_the_servers_body_and_the_files_head(simulation: Any, tmp_path: Path) -> None:
    simulation(FedPer(), tmp_path).run()
    run = simulation(FedPer(), tmp_path)
    [row] = deploy_new(run, tmp_path / "deploy")
    assert (row["file"], row["format"]) == ("new.tflite", "trainable")
    examples = np.zeros((1, 6), np.float32), [0]
    device = Device(TrainableModel.load(tmp_path / "deploy" / "new.tflite"), examples)
    initial = Device(run.model, examples).weights
    [personal] = [each.parameters() for each in run.deployed([0])]
    for parameter in run.model.layout.parameters:
        source = initial if parameter.group == "head" else personal
        np.testing.assert_array_equal(device.weights[parameter.name], source[parameter.name])
    assert not np.array_equal(device.weights.vector, initial.vector)


@pytest.mark.parametrize("devices", [3, None, "3", ["3"], [1.5], [99], np.int64(3)])
def test_what_is_no_list_of_ids_is_refused(devices: Any, simulation: Any, tmp_path: Path) -> None:
    message = r"^(Simulation\.deployed: expected a list of devices, found .*|device \S+: expected an id from 0 to 6)"
    with pytest.raises(ConfigurationError, match=message):
        simulation(FedPer(), tmp_path).deployed(devices)


@pytest.mark.parametrize("wrapped", [np.asarray, lambda x: (x,), lambda x: {"signals": x}])
def test_file_beside_a_device_has_what_its_inputs_are_standardized_by(
    wrapped: Any, simulation: Any, tmp_path: Path
) -> None:
    x, y = np.arange(240, dtype=np.float32).reshape(40, 6) ** 2, np.arange(40) % 2
    raw, data = (federate(Dataset("d", wrapped(x), y, standardize=by), iid, 4, 0) for by in (False, True))
    made = simulation(FedAvg(), tmp_path, rounds=1, data=data, fleet=Fleet())
    made.run()
    list(deploy(made, tmp_path / "deploy", [2], []))
    found = json.loads((tmp_path / "deploy" / "device_2_inputs.json").read_text())["x"]
    rows = raw.test(2)
    expected = (x[rows] - np.array(found["mean"])) / np.array(found["deviation"])
    np.testing.assert_array_equal(made.data.x[rows], expected.astype(np.float32))


def test_file_with_the_names_of_the_classes_is_written(simulation: Any, tmp_path: Path) -> None:
    x, y = np.arange(240, dtype=np.float32).reshape(40, 6) / 240, np.arange(40) % 2
    data = federate(Dataset("d", x, y, class_names=("Füße", "hands")), iid, 4, 0)
    made = simulation(FedAvg(), tmp_path, rounds=1, data=data, fleet=Fleet())
    made.run()
    deploy_new(made, tmp_path / "deploy")
    assert json.loads((tmp_path / "deploy" / "classes.json").read_text("utf-8")) == ["Füße", "hands"]


def test_new_user_of_local_training_begins_with_the_initial_model(simulation: Any, tmp_path: Path) -> None:
    simulation(Local(), tmp_path).run()
    message = (
        rf"strategy local: sends no weights for a new device to start from; start it from {tmp_path}/initial.tflite"
    )
    with pytest.raises(StrategyError, match=message):
        deploy_new(simulation(Local(), tmp_path), tmp_path / "deploy")


def test_global_file_scores_the_mean_of_the_seen_devices(simulation: Any, tmp_path: Path) -> None:
    summary = simulation(FedAvg(), tmp_path).run()
    [[row]] = deploy(simulation(FedAvg(), tmp_path), tmp_path / "deploy", None, [])
    assert (tmp_path / "deploy" / "global.tflite").read_bytes() == (tmp_path / "model.tflite").read_bytes()
    assert row["accuracy"] == pytest.approx(summary.metrics["accuracy"]["weighted_mean"])
    assert row["loss"] == pytest.approx(summary.metrics["loss"]["weighted_mean"])


def test_files_of_all_formats_are_measured_and_listed(simulation: Any, tmp_path: Path) -> None:
    simulation(FedAvg(), tmp_path, rounds=6).run()
    output = tmp_path / "phones"
    for device in (0, 1, 0):  # the second time, rows are replaced
        [rows] = deploy(simulation(FedAvg(), tmp_path, rounds=6), output, [device])
    with (output / "files.csv").open() as file:
        table = list(csv.DictReader(file))
    names = [f"device_{id}{kind}.tflite" for id in (1, 0) for kind in KINDS]
    assert [row["file"] for row in table] == names
    assert {path.name for path in output.iterdir()} == {*names, "files.csv"}
    assert [int(row["bytes"]) for row in table] == [(output / name).stat().st_size for name in names]
    trainable, *others = rows
    for row in others:
        assert row["loss"] == pytest.approx(
            trainable["loss"], abs={"float32": 0, "float16": 2e-3, "int8": 0.1}[row["format"]]
        )
        assert row["rows"] == 4
        assert 0 < row["milliseconds"] < 1000


TOLERANCES = {"float32": 0, "float16": 2e-3, "int8": 0.1}
KINDS = ("", "_infer_float32", "_infer_float16", "_infer_int8")


def test_compiled_model_runs_the_files_as_the_interpreter_does(
    simulation: Any, fleet_data: Any, momentum: TrainableModel, tmp_path: Path
) -> None:
    """The calls of docs/android.md and docs/ios.md, on LiteRT's two runtimes."""
    simulation(FedAvg(), tmp_path).run()
    [rows] = deploy(simulation(FedAvg(), tmp_path), tmp_path, [0])
    trainable, *others = [(tmp_path / row["file"]).read_bytes() for row in rows]
    x, y = fleet_data.x[:4], fleet_data.y[:4].astype(np.int32)
    for content in (trainable, *others):
        one, other = InterpreterEngine(content, "mine"), CompiledEngine(content, "mine")
        np.testing.assert_allclose(other.call("infer", x=x)["logits"], one.call("infer", x=x)["logits"], rtol=1e-6)
    one, other = InterpreterEngine(trainable, "mine"), CompiledEngine(trainable, "mine")
    step = {"x": x, "y": y, "sample_weight": np.array([2, 2, 0, 0], np.float32), "learning_rate": np.float32(0.1)}
    for _ in range(3):
        losses = [engine.call("train", **step)["loss"] for engine in (one, other)]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    weights = other.call("parameters")
    for name, expected in one.call("parameters").items():
        np.testing.assert_allclose(weights[name], expected, rtol=1e-6, atol=1e-8)
    fresh = CompiledEngine(trainable, "mine")
    fresh.call("restore", **weights)
    assert fresh.call("infer", x=x)["logits"].tobytes() == other.call("infer", x=x)["logits"].tobytes()


def test_strategy_that_corrects_outputs_is_refused(simulation: Any, grouped: TrainableModel, tmp_path: Path) -> None:
    simulation(KNNPer(), tmp_path, model=grouped).run()
    run = simulation(KNNPer(), tmp_path, model=grouped)
    corrected = [record.device for record in RunFolder(tmp_path).devices() if record["neighbour_share"]]
    with pytest.raises(StrategyError, match=rf"^device {corrected[0]}: its strategy corrects the model's outputs"):
        device_model(run, corrected[0])


def test_commands_on_a_run_from_python_name_the_way_in_python(simulation: Any, tmp_path: Path) -> None:
    simulation(FedPer(), tmp_path).run()
    way = (
        rf"^{tmp_path}: contains no .hydra/config.yaml, since the run was started from Python; create the same "
        rf"Simulation there: "
        r"simulation.deployed\(\[ID\]\) returns devices .*, list\(odt_sim.deploy.write.deploy\(simulation, .*\)\) writes the"
    )
    with pytest.raises(ConfigurationError, match=way):
        Results.load(tmp_path).device(0).model()
    with pytest.raises(ConfigurationError, match=way):
        deploy_command([str(tmp_path), "--device", "0"])
    with pytest.raises(StrategyError, match=r"or simulation.deployed\(\[ID\]\) for a run started from Python$"):
        Results.load(tmp_path).model()
    files = [
        row["file"] for rows in deploy(simulation(FedPer(), tmp_path), tmp_path / "phones", [0], []) for row in rows
    ]
    assert files == ["device_0.tflite"]


def test_command_deploys_the_global_model_of_a_run_from_python(simulation: Any, tmp_path: Path) -> None:
    simulation(FedAvg(), tmp_path).run()
    assert deploy_command([str(tmp_path), "--global"]) == 0
    names = {"global.tflite", "global_infer_float32.tflite", "global_infer_float16.tflite", "files.csv"}
    assert {path.name for path in (tmp_path / "deploy").iterdir()} == names
    assert deploy_command([str(tmp_path), "--new"]) == 0
    expected = Results.load(tmp_path).model().content
    assert [(tmp_path / "deploy" / f"{name}.tflite").read_bytes() for name in ("global", "new")] == [expected] * 2
    with pytest.raises(
        ConfigurationError, match=r"int8 needs examples of the run's data, which runs started from Python"
    ):
        deploy_command([str(tmp_path), "--global", "--format", "int8"])


def test_strategy_without_a_global_model_is_refused(simulation: Any, tmp_path: Path) -> None:
    simulation(FedPer(), tmp_path).run()
    with pytest.raises(
        StrategyError, match=r"has no global model, .* strategy fedper keeps .*; deploy a device: .*Python"
    ):
        list(deploy(simulation(FedPer(), tmp_path), tmp_path / "deploy", None))


def test_run_that_is_not_complete_is_refused(simulation: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the run is not complete"):
        device_model(simulation(FedAvg(), tmp_path), 0)


@pytest.mark.parametrize("device", [-1, 7])
def test_unknown_device_is_refused(device: int, simulation: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"^device {device}: expected an id from 0 to 6$"):
        device_model(simulation(FedAvg(), tmp_path), device)


def test_missing_checkpoint_is_named(simulation: Any, tmp_path: Path) -> None:
    simulation(FedAvg(), tmp_path).run()
    for path in (tmp_path / "checkpoint").glob("server.*"):
        path.unlink()
    with pytest.raises(CheckpointError, match=r"server\.\d\.safetensors: no such checkpoint"):
        device_model(simulation(FedAvg(), tmp_path), 0)


def test_missing_quantizer_is_one_line_and_writes_nothing(
    simulation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation(FedAvg(), tmp_path).run()
    monkeypatch.setitem(sys.modules, "ai_edge_quantizer", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'odt_sim\[deploy\]', or leave it out: --format float32"):
        list(deploy(simulation(FedAvg(), tmp_path), tmp_path / "deploy", [0]))
    assert not (tmp_path / "deploy").exists()


def test_other_table_in_the_folder_is_kept(simulation: Any, tmp_path: Path) -> None:
    simulation(FedAvg(), tmp_path).run()
    output = tmp_path / "deploy"
    output.mkdir()
    (output / "files.csv").write_text("name,size\nmine,1\n")
    with pytest.raises(CheckpointError, match=r"files\.csv: not a table of deployed files"):
        list(deploy(simulation(FedAvg(), tmp_path), output, [0], []))
    assert [path.name for path in output.iterdir()] == ["files.csv"]
