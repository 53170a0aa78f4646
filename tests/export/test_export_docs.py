"""The examples of docs/export.md run as printed."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from odt_sim.device.device import Device
from odt_sim.model.trainable import TrainableModel

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
CLASSES = 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "name"), [("The class-based way", "pictures"), ("Your own training function", "mine")]
)
def test_docs_example_exports_a_model_that_devices_train(
    heading: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    (tmp_path / "example.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("example.py")
    model = TrainableModel.load(tmp_path / f"{name}.tflite", loss="sparse_categorical_crossentropy")
    labels = np.arange(40) % CLASSES
    x = np.eye(64, dtype=np.float32)[labels].reshape(-1, *model.x.shape[1:])
    y = labels if model.y.dtype == "int32" else np.eye(CLASSES, dtype=np.float32)[labels]
    device = Device(model, (x, y), test=(x, y))
    rate = 0.5 if "learning_rate" in model.capabilities else None
    device.train(epochs=40, learning_rate=rate)
    assert device.evaluate("test")["accuracy"] > 0.9
