"""Inference-only files of layers for which Keras also draws numbers in inference, without using them."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from odt_sim.export import export_model
from odt_sim.model.editing.inference_only import inference_only
from odt_sim.model.reading.graph_reader import read_graph

RANGE = {"factor": 0.5, "value_range": (0, 1)}


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(lambda: layers.LSTM(4, dropout=0.3), marks=pytest.mark.slow),
        pytest.param(lambda: layers.GRU(4, recurrent_dropout=0.3), marks=pytest.mark.slow),
        lambda: layers.SimpleRNN(4, dropout=0.3, recurrent_dropout=0.2),
        lambda: layers.RandomSaturation(**RANGE),
        lambda: layers.RandomHue(**RANGE),
        lambda: layers.RandomGrayscale(0.5),
        lambda: layers.RandomSharpness(**RANGE),
        lambda: layers.RandomColorDegeneration(0.5),
    ],
)
def test_draws_that_inference_does_not_use_are_left_out(layer: Any, tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    random = layer()
    recurrent = isinstance(random, layers.RNN)
    shape, further = ((3, 2), []) if recurrent else ((4, 4, 3), [layers.Conv2D(2, 3, activation="relu")])
    model = keras.Sequential([layers.Input(shape), random, *further, layers.Flatten(), layers.Dense(2)])
    path = export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2)
    assert read_graph(path.read_bytes(), "m").assigned_by("infer")
    content = inference_only(path.read_bytes(), "m")
    assert not {"RANDOM_UNIFORM", "BITWISE_XOR", "VAR_HANDLE"} & {
        op.kind for op in read_graph(content, "m").ops("infer")
    }
    infer = Interpreter(model_content=content).get_signature_runner("infer")
    x = np.random.default_rng(2).random((2, *shape), np.float32)
    for _ in range(2):
        np.testing.assert_allclose(infer(x=x)["logits"], model(x, training=False), rtol=1e-5, atol=1e-6)
