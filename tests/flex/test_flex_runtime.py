"""`backend.runtime=flex`: TensorFlow's interpreter in a separate process, with the same contract as LiteRT's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from dialects import generated
from engine_conformance import EngineConformance

from odt_sim import Simulation, Strategy, TrainableModel
from odt_sim.cli.main import main
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.engines import Engine, RuntimeChoice, RuntimeName
from odt_sim.device.engines.flex import FlexEngine, _process
from odt_sim.errors import InvocationError, ModelError
from odt_sim.export import deflex
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.strategies import FedAvg, FedPer
from odt_sim.testing import StrategyConformance, random_data

FLEX = RuntimeChoice("flex", sys.executable)


class TestFedAvgOnFlex(StrategyConformance):
    runtime = FLEX

    def strategy(self) -> Strategy:
        return FedAvg()


class TestFlexEngine(EngineConformance):
    @pytest.fixture
    def model(self) -> TrainableModel:
        return TestFedAvgOnFlex().model()

    @pytest.fixture
    def engine(self, model: TrainableModel) -> Engine:
        return FLEX(model.content, model.where)


@pytest.mark.parametrize("strategy", [FedAvg, FedPer])
def test_three_runtimes_have_the_same_losses(strategy: type[Strategy], tmp_path: Path) -> None:
    suite, losses = TestFedAvgOnFlex(), {}
    for name in ("litert", "compiled", "flex"):
        backend = SerialBackend(name, sys.executable if name == "flex" else None)
        Simulation(suite.model(), suite.data(), strategy(), rounds=5, directory=tmp_path / name, backend=backend).run()
        rows = map(json.loads, (tmp_path / name / "rounds.jsonl").read_text().splitlines())
        losses[name] = [row["train_loss"] for row in rows]
    assert losses["compiled"] == pytest.approx(losses["litert"], rel=1e-5)
    assert losses["flex"] == pytest.approx(losses["litert"], rel=1e-5)


def train_losses(model: TrainableModel, data: FederatedData, runtime: RuntimeName, folder: Path) -> list[float]:
    backend = SerialBackend(runtime, sys.executable if runtime == "flex" else None)
    Simulation(model, data, FedAvg(), rounds=5, directory=folder, backend=backend).run()
    return [json.loads(row)["train_loss"] for row in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["checkpoint_scalar", "load_restores"])
def test_simulated_flex_file_has_the_losses_of_its_twin_without_flex(name: str, tmp_path: Path) -> None:
    source = generated(name).path
    flex = TrainableModel.load(source, flex=True)
    path = deflex(source, tmp_path / "twin.tflite")
    twin = TrainableModel.load(path, loss=flex.loss, from_logits=flex.from_logits)
    data = random_data(flex, [9, 4, 6])
    expected = train_losses(twin, data, "litert", tmp_path / "litert")
    assert train_losses(flex, data, "flex", tmp_path / "flex") == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ModelError, match="contains Flex ops"):
        TrainableModel.load(source)


def test_doctor_tries_flex_ops(capsys: pytest.CaptureFixture[str]) -> None:
    path = generated("checkpoint_vector").path
    assert main(["doctor", str(path), "--json", "--flex-python", sys.executable]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [found["verdicts"][place]["trains"] for place in ("litert", "flex", "browser")] == [False, True, False]
    assert found["measured"]["loss"] == "categorical_crossentropy of logits"
    assert found["measured"]["train_ms"] > 0


def test_file_with_flex_ops_trains(cnn: Path) -> None:
    engine = FLEX(cnn.read_bytes(), "cnn")
    batch = {
        "x": np.random.default_rng(0).normal(size=(8, 8, 8, 1)).astype(np.float32),
        "y": np.arange(8, dtype=np.int32) % 3,
    }
    more = {"sample_weight": np.ones(8, np.float32), "learning_rate": np.float32(0.1)}
    losses = [float(engine.call("train", **batch, **more)["loss"]) for _ in range(10)]
    assert losses[-1] < losses[0]


def test_checkpoint_paths_pass(cnn: Path, tmp_path: Path) -> None:
    engine = FLEX(cnn.read_bytes(), "cnn")
    path = np.array(str(tmp_path / "checkpoint"), np.bytes_)
    assert engine.call("save", checkpoint_path=path)["checkpoint_path"] == path
    assert (tmp_path / "checkpoint").exists()


def test_wrong_inputs_and_files_are_one_line(cnn: Path) -> None:
    with pytest.raises(ModelError, match=r"signature 'infer' failed in TensorFlow: .+") as caught:
        FLEX(cnn.read_bytes(), "cnn").call("infer", z=np.zeros(3, np.float32))
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match=r"broken.tflite: TensorFlow cannot load it: .+"):
        FLEX(b"TFL3" * 9, "broken.tflite")


def test_killed_process_is_an_error_once(cnn: Path) -> None:
    engine = FlexEngine(cnn.read_bytes(), "cnn", sys.executable)
    os.kill(_process(sys.executable)._child.pid, signal.SIGKILL)
    with pytest.raises(InvocationError, match="its process ended"):
        engine.call("parameters")
    assert "a0" in FlexEngine(cnn.read_bytes(), "cnn", sys.executable).call("parameters")


def test_process_ends_with_its_owner(cnn: Path, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from odt_sim.device.engines import RuntimeChoice; from odt_sim.device.engines import flex;"
        f"RuntimeChoice('flex', sys.executable)(open({str(cnn)!r}, 'rb').read(), 'cnn');"
        "print(flex._process(sys.executable)._child.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid = int(child.stdout)
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            return
        time.sleep(0.1)
    pytest.fail(f"process {pid} still runs")
