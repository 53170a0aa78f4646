"""Evaluation computes Keras' losses."""

from pathlib import Path

import keras
import numpy as np
import pytest

from odt_sim.device.device import Device
from odt_sim.export import export_model
from odt_sim.metrics.losses import example_losses
from odt_sim.model.contract.manifest import LOSSES, REGRESSIONS
from odt_sim.model.trainable import TrainableModel
from tests.metrics.single_output import figures

OUTPUTS = np.array([[0.1, -2.0, 3.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]], np.float32)
PROBABILITIES = np.array([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0], [0.3, 0.3, 0.4]], np.float32)


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_evaluation_loss_equals_keras(loss: str, from_logits: bool) -> None:
    from_logits = from_logits and loss.endswith("crossentropy")
    settings = {"from_logits": from_logits} if loss.endswith("crossentropy") else {}
    outputs = OUTPUTS if from_logits or loss in REGRESSIONS else PROBABILITIES
    y = np.array([2, 1, 0]) if loss.startswith("sparse") else np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0]], np.float32)
    expected = keras.losses.get(loss)(y, outputs, **settings)
    np.testing.assert_allclose(example_losses(outputs, y, loss, from_logits), expected, rtol=1e-5)


@pytest.mark.slow
def test_evaluation_reads_hubers_delta_from_the_file(tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3)])
    path = export_model(model, tmp_path / "m.tflite", loss=keras.losses.Huber(0.3), optimizer="sgd", batch_size=2)
    x, y = np.array([[0.5, -2.0], [3.0, 0.0]], np.float32), np.array([[0, 1, 2], [0.1, 0.2, 0.3]], np.float32)
    expected = float(keras.losses.Huber(0.3)(y, model(x)))
    device = Device(TrainableModel.load(path), (x, y))
    assert device.evaluate("train")["loss"] == pytest.approx(expected, rel=1e-5)


def test_binary_accuracy_counts_outputs_on_the_labels_side() -> None:
    y = np.array([[1, 0], [1, 1]], np.float32)
    logits = np.array([[0.2, -3.0], [np.nan, -0.1]], np.float32)
    assert figures(logits, y, "binary_crossentropy", True)["accuracy"] == 0.5
    assert figures(np.array([[0.2, 0.1], [0.9, 0.6]]), y, "binary_crossentropy", False)["accuracy"] == 0.75
