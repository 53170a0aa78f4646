"""Outputs with a Keras mask: training, inference and the signature `loss` count the positions that Keras counts."""

import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from keras import layers
from numpy.typing import NDArray

from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export import export_model
from odt_sim.model.trainable import TrainableModel

BATCH, LENGTH, RATE = 8, 6, 0.1
Batch = tuple[NDArray[Any], dict[str, NDArray[Any]]]


def tagger() -> Any:
    """Return two outputs with masks: a softmax inside TimeDistributed, and two values; and one output without."""
    x = layers.Input((LENGTH,), dtype="int32")
    h = layers.Embedding(9, 5, mask_zero=True)(x)
    h = layers.Bidirectional(layers.GRU(2, return_sequences=True))(h)
    tags = layers.TimeDistributed(layers.Dense(3, activation="softmax"), name="tags")(h)
    values, kind = layers.Dense(2, name="values")(h), layers.Dense(1, name="kind")(layers.GlobalAveragePooling1D()(h))
    return keras.Model(x, {"tags": tags, "values": values, "kind": kind})


def drawn(random: np.random.Generator, rows: int) -> Batch:
    """Return sentences of 1 to 6 words with padding behind, and targets."""
    x = random.integers(1, 9, (rows, LENGTH)).astype(np.int32)
    for row in x:
        row[random.integers(1, LENGTH + 1) :] = 0
    y = {
        "tags": random.integers(0, 3, (rows, LENGTH)).astype(np.int32),
        "values": random.normal(size=(rows, LENGTH, 2)).astype(np.float32),
        "kind": random.normal(size=(rows, 1)).astype(np.float32),
    }
    return x, y


def padded(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values, np.repeat(values[:1], BATCH - len(values), 0)])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    keras.utils.set_random_seed(1)
    model, path = tagger(), tmp_path_factory.mktemp("masks") / "model.tflite"
    losses = {"tags": "sparse_categorical_crossentropy", "values": "mean_squared_error", "kind": "huber"}
    export_model(model, path, loss=losses, optimizer=keras.optimizers.SGD(RATE), batch_size=BATCH)
    model.compile(keras.optimizers.SGD(RATE), losses, run_eagerly=True, jit_compile=False)
    return model, path


def test_training_counts_the_same_positions_as_keras_also_in_a_padded_batch(exported: tuple[Any, Path]) -> None:
    model, path = exported
    lite, random = Interpreter(str(path), num_threads=1), np.random.default_rng(0)
    for rows in (8, 5, 8, 1):
        x, y = drawn(random, rows)
        weight = np.zeros(BATCH, np.float32)
        weight[:rows] = BATCH / rows
        targets = {f"y_{name}": padded(values) for name, values in y.items()}
        step = lite.get_signature_runner("train")
        found = step(x=padded(x), sample_weight=weight, learning_rate=np.float32(RATE), **targets)["loss"]
        expected = model.train_on_batch(x, y, return_dict=True)["loss"]
        model.reset_metrics()
        assert float(found) == pytest.approx(float(expected), rel=1e-5)
    parameters = lite.get_signature_runner("parameters")()
    for i, weights in enumerate(model.get_weights()):
        np.testing.assert_allclose(parameters[f"a{i}"], weights, atol=1e-6)


def test_inference_returns_the_masks_and_the_signature_loss_takes_them(exported: tuple[Any, Path]) -> None:
    path = exported[1]
    lite = Interpreter(str(path), num_threads=1)
    (x, y), model = drawn(np.random.default_rng(3), BATCH), TrainableModel.load(path)
    assert {output.name: output.mask for output in model.outputs} == {"tags": True, "values": True, "kind": False}
    assert {output.name: output.from_logits for output in model.outputs}["tags"] is False
    outputs = lite.get_signature_runner("infer")(x=x)
    mask = outputs["mask_tags"]
    np.testing.assert_array_equal(mask, x != 0)
    losses = lite.get_signature_runner("loss")(**outputs, **{f"y_{name}": values for name, values in y.items()})
    errors = ((outputs["logits_values"] - y["values"]) ** 2).mean(axis=-1)
    np.testing.assert_allclose(losses["losses_values"], (errors * mask).sum(axis=1) / mask.sum(axis=1), rtol=1e-5)


def test_embeddings_lose_a_mask(tmp_path: Path) -> None:
    x = layers.Input((LENGTH,), dtype="int32")
    model = keras.Model(x, layers.Dense(3)(layers.Embedding(9, 5, mask_zero=True)(x)))
    with pytest.raises(ExportError, match=r"^embed: the model's output carries a mask of x, .*; leave embed out$"):
        export_model(model, tmp_path / "m", loss="mse", optimizer="sgd", embed=True)


@pytest.mark.slow
def test_mask_that_gets_lost_is_warned_of(tmp_path: Path) -> None:
    """An addition by + loses the mask, as in Keras; a layer keeps it, and a label to ignore makes up for it.

    Attention takes the mask off what it is given, here a normalized copy. After pooling, positions have no padding.
    """
    x = layers.Input((LENGTH,), dtype="int32")
    h = layers.Embedding(9, 5, mask_zero=True, name="words")(x)
    y = layers.LayerNormalization()(h)
    joined = h + layers.Dense(5)(h), layers.Add()([h, layers.MultiHeadAttention(1, 2)(y, y)])
    lost, kept = (keras.Model(x, layers.Dense(3)(both)) for both in joined)
    pooled = keras.Model(x, layers.RepeatVector(LENGTH)(layers.Dense(3)(layers.GlobalAveragePooling1D()(h))))
    loss = "sparse_categorical_crossentropy"
    with pytest.warns(ExportWarning, match=r"the mask of layer 'words' does not reach the output, so padding counts"):
        export_model(lost, tmp_path / "m", loss=loss, optimizer="sgd")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_model(kept, tmp_path / "m", loss=loss, optimizer="sgd")
        export_model(pooled, tmp_path / "m", loss=loss, optimizer="sgd")
        export_model(lost, tmp_path / "m", loss={"name": loss, "ignore_class": 0}, optimizer="sgd")
