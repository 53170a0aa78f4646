"""Files that only infer hold the weights that an embedding and the output share once."""

from pathlib import Path

import keras
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from odt_sim import TrainableModel
from odt_sim.export import export_model
from odt_sim.model.editing.fully_connected import with_fully_connected
from odt_sim.model.editing.inference_only import inference_only, with_half_floats
from odt_sim.model.reading import flatbuffer
from tests.export.parity.own_layers import Tied

WORDS, WIDTH = 500, 8


def test_shared_weights_are_stored_once(tmp_path: Path) -> None:
    x = layers.Input((4,), dtype="int32")
    embedding = layers.Embedding(WORDS, WIDTH)
    network = keras.Model(x, Tied(embedding)(layers.Dense(WIDTH)(embedding(x))))
    loss = "sparse_categorical_crossentropy"
    path = export_model(network, tmp_path / "tied.tflite", loss=loss, optimizer="sgd", batch_size=2)
    content = inference_only(TrainableModel.load(path).content, "tied")
    assert len(content) < 1.5 * 4 * WORDS * WIDTH
    assert len(with_half_floats(content)) < 1.5 * 2 * WORDS * WIDTH
    assert "BATCH_MATMUL" not in flatbuffer.read(with_fully_connected(content), "tied").operators["infer"]
    ids = np.array([[1, 2, 3, 499], [0, 7, 7, 250]], np.int32)
    found = Interpreter(model_content=content, num_threads=1).get_signature_runner("infer")(x=ids)["logits"]
    np.testing.assert_allclose(found, np.asarray(network(ids)), rtol=1e-5, atol=1e-6)
