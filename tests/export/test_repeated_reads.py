"""Ops that take the value of one variable twice."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from odt_sim.export import export_model
from odt_sim.export.emit.convert import with_separate_reads
from odt_sim.model.editing.inference_only import inference_only
from odt_sim.model.reading import flatbuffer


class Squared(layers.Layer):  # type: ignore[misc]
    """The input times V V, plus V + V."""

    def build(self, shape: Any) -> None:
        self.v = self.add_weight(shape=(shape[-1],), initializer="random_normal", name="v")

    def call(self, x: Any) -> Any:
        return x * (self.v * self.v) + (self.v + self.v)


def test_variable_is_read_once_per_input(tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((3,)), Squared()])
    path = export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2)
    content = path.read_bytes()
    assert with_separate_reads(content) is content
    assert flatbuffer.read(content, "m").operators["infer"]["READ_VARIABLE"] == 3
    x = np.array([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]], np.float32)
    v = model.weights[0].numpy()
    for file in (content, inference_only(content, "m")):
        found = Interpreter(model_content=file).get_signature_runner("infer")(x=x)["logits"]
        np.testing.assert_allclose(found, x * v * v + 2.0 * v, rtol=1e-5, atol=1e-7)
