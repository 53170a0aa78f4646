"""The files of `odt-sim deploy`, in Chromium and in Python."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from test_litert import COMPILE, run

from odt_sim import Simulation, TrainableModel, TrainingPlan
from odt_sim.data import digits, federate, iid
from odt_sim.deploy.write import deploy
from odt_sim.strategies.shared_parts.fedper import FedPer

DEVICE = 3
TOLERANCES = {"": 1e-6, "_infer_float32": 1e-6, "_infer_float16": 1e-6, "_infer_int8": 0.2}


@pytest.fixture(scope="module")
def data() -> Any:
    return federate(digits(), iid, 6, seed=0)


@pytest.fixture(scope="module")
def files(digits_cnn: TrainableModel, data: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of one device, personalized by three rounds of FedPer."""
    folder = tmp_path_factory.mktemp("run")
    simulation = Simulation(digits_cnn, data, FedPer(), rounds=3, directory=folder, plan=TrainingPlan(2, 0.1))
    simulation.run(observers=[])
    list(deploy(simulation, folder / "deploy", [DEVICE]))
    return folder / "deploy"


@pytest.mark.parametrize("kind", list(TOLERANCES))
def test_browser_infers_as_python_does(kind: str, files: Path, data: Any, harness: Any) -> None:
    content = (files / f"device_{DEVICE}{kind}.tflite").read_bytes()
    x = data.x[data.test(DEVICE)[:16]]
    expected = Interpreter(model_content=content).get_signature_runner("infer")(x=x)["logits"]
    body = f"const {{ x, bytes }} = JSON.parse(file); file = bytes; {COMPILE}"
    body += "return Array.from((await model.call('infer', { x: Float32Array.from(x) })).logits);"
    given = {"x": x.ravel().tolist(), "bytes": base64.b64encode(content).decode()}
    found = np.reshape(run(harness, body, json.dumps(given)), expected.shape)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCES[kind], atol=TOLERANCES[kind])
    assert (found.argmax(1) == expected.argmax(1)).mean() > 0.9


def test_trainable_file_trains_on_in_the_browser(files: Path, data: Any, harness: Any) -> None:
    content = (files / f"device_{DEVICE}.tflite").read_bytes()
    rows = data.train(DEVICE)[:16]
    step = {"x": data.x[rows], "y": data.y[rows].astype(np.int32)}
    step |= {"sample_weight": np.ones(16, np.float32), "learning_rate": np.float32(0.1)}
    train = Interpreter(model_content=content, num_threads=1).get_signature_runner("train")
    expected = [float(train(**step)["loss"]) for _ in range(4)]
    body = f"""
      const {{ step, bytes }} = JSON.parse(file);
      file = bytes;
      {COMPILE}
      const {{ x, y, sample_weight, learning_rate }} = step;
      const inputs = {{
        x: Float32Array.from(x), y: Int32Array.from(y), sample_weight: Float32Array.from(sample_weight),
        learning_rate: Float32Array.from(learning_rate),
      }};
      const losses = [];
      for (let i = 0; i < 4; i++) losses.push((await model.call("train", inputs)).loss[0]);
      return losses;
    """
    given = {"step": {name: np.ravel(value).tolist() for name, value in step.items()}}
    given["bytes"] = base64.b64encode(content).decode()
    found = run(harness, body, json.dumps(given))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found[-1] < found[0]
