"""Steps of the Flex flavour equal those of Keras, and their gradients those of a GradientTape."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from flex_model import BATCH, RATE, FlexModel, batches, export, small_cnn
from keras import layers

from odt_sim.export.emit.flex import checkpoint_of
from odt_sim.export.keras.parameters import random_states_of


def recurrent() -> Any:
    keras.utils.set_random_seed(3)
    vectors = [layers.Input((4,), dtype="int32"), layers.Embedding(6, 3)]
    return keras.Sequential([*vectors, layers.LSTM(5), layers.Dense(3)], name="recurrent")


def attentive() -> Any:
    keras.utils.set_random_seed(3)
    x = layers.Input((5, 4))
    attended = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 2)(x, x)]))
    hidden = layers.Dense(6, activation="gelu")(attended)
    return keras.Model(x, layers.Dense(3)(layers.GlobalAveragePooling1D()(hidden)), name="attentive")


def without_biases() -> Any:
    keras.utils.set_random_seed(3)
    hidden = [layers.Dense(6, activation, use_bias=False) for activation in ("relu", "relu6", "hard_tanh")]
    return keras.Sequential([layers.Input((4,)), *hidden, layers.Dense(3)], name="without_biases")


CASES: list[tuple[Callable[[], Any], Any]] = [
    (small_cnn, keras.optimizers.Adam()),
    (attentive, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8, dynamic_growth_steps=2)),
    (without_biases, keras.optimizers.SGD()),
    (recurrent, keras.optimizers.SGD(momentum=0.9, clipnorm=0.1)),
    (recurrent, keras.optimizers.SGD(gradient_accumulation_steps=2)),
]


def step(model: Any, optimizer: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Trains a Keras model; returns the loss and the gradients by the names of the weights."""
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        loss = loss_of(batch["y"], model(batch["x"], training=True), sample_weight=batch["sample_weight"])
        scaled = optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled, model.trainable_variables)
    factor = scaled / loss
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    named = zip(model.trainable_variables, gradients, strict=True)
    return {"loss": loss, **{v.path: tf.convert_to_tensor(g) / factor for v, g in named}}


@pytest.mark.parametrize(("build", "optimizer"), CASES)
def test_five_steps_agree_with_keras(build: Callable[[], Any], optimizer: Any, tmp_path: Path) -> None:
    model = build()
    before = model.get_weights()
    flex = FlexModel(export(model, tmp_path, optimizer=optimizer, flavour="flex"))
    optimizer.build(model.trainable_variables)
    optimizer.learning_rate = RATE
    for batch in batches(model, 5):
        expected, found = step(model, optimizer, batch), flex.train(batch)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            largest = float(np.abs(value).max())
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * largest + 1e-7, err_msg=name)
    limit = 1e-5 * max(np.abs(new - old).max() for new, old in zip(model.get_weights(), before, strict=True)) + 1e-7
    for found, expected in zip(flex.parameters(), model.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=limit)
    flex.save(tmp_path / "checkpoint")
    reader = tf.train.load_checkpoint(str(tmp_path / "checkpoint"))
    states = checkpoint_of(model, optimizer, random_states_of(model))
    assert set(reader.get_variable_to_dtype_map()) == set(states)
    for name, v in states.items():
        np.testing.assert_allclose(reader.get_tensor(name), v.numpy(), rtol=1e-5, atol=limit, err_msg=name)


def test_open_batch_takes_any_number_of_rows(tmp_path: Path) -> None:
    model, optimizer = small_cnn(), keras.optimizers.SGD(float(RATE))
    flex = FlexModel(export(model, tmp_path, optimizer="sgd", batch_size=None, flavour="flex"))
    for rows, batch in zip((BATCH, 3, 1), batches(model, 3), strict=True):
        some = {name: values[:rows] for name, values in batch.items()}
        np.testing.assert_allclose(flex.train(some)["loss"], step(model, optimizer, some)["loss"], rtol=1e-5)
    for found, expected in zip(flex.parameters(), model.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_both_flavours_train_alike(cnn: Path, tmp_path: Path) -> None:
    flex = FlexModel(cnn)
    lite = Interpreter(str(export(small_cnn(), tmp_path)), num_threads=1)
    for batch in batches(small_cnn(), 5):
        loss = lite.get_signature_runner("train")(**batch, learning_rate=RATE)["loss"]
        assert flex.train(batch)["loss"] == pytest.approx(loss, rel=1e-5)
    values = lite.get_signature_runner("parameters")()
    for i, found in enumerate(flex.parameters()):
        np.testing.assert_allclose(found, values[f"a{i}"], atol=1e-5)


def test_infer_and_set_parameters(cnn: Path) -> None:
    model, flex = small_cnn(), FlexModel(cnn)
    x = next(batches(model, 1))["x"]
    np.testing.assert_allclose(flex.call("infer", x=x)["logits"], model(x), rtol=1e-5, atol=1e-6)
    weights = [2 * value for value in model.get_weights()]
    flex.call("set_parameters", **{f"a{i}": value for i, value in enumerate(weights)})
    model.set_weights(weights)
    for found, expected in zip(flex.parameters(), weights, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(flex.call("infer", x=x)["logits"], model(x), rtol=1e-5, atol=1e-6)


def test_group_embedding_and_offset_steps_agree(tmp_path: Path) -> None:
    model = small_cnn()
    more = {"train_groups": ["head"], "embed": True, "gradient_offset": True}
    flex = FlexModel(export(model, tmp_path, optimizer="sgd", flavour="flex", **more))
    before, batch = flex.parameters(), next(batches(model, 1))
    inputs = {**batch, "learning_rate": RATE, "mu": np.float32(0)}
    assert set(flex.call("train_head", **inputs)) == {"loss", "cnn/classifier/kernel", "cnn/classifier/bias"}
    changed = [not np.array_equal(old, new) for old, new in zip(before, flex.parameters(), strict=True)]
    assert changed == [p.startswith("cnn/classifier") for p in (v.path for v in model.weights)]

    embedding = flex.call("embed", x=inputs.pop("x"))["embedding"]
    assert embedding.shape == (BATCH, 36)
    middle = flex.parameters()
    gradient = flex.call("head_train", embedding=embedding, **inputs)["cnn/classifier/bias"]
    np.testing.assert_allclose(flex.parameters()[-1], middle[-1] - RATE * gradient, atol=1e-7)

    offsets = {f"b{i}": np.full(v.shape, 0.5, np.float32) for i, v in enumerate(model.trainable_weights)}
    flex.call("set_gradient_offset", **offsets)
    last = flex.parameters()[-1]
    gradient = flex.train(batch, mu=np.float32(0.1))["cnn/classifier/bias"]
    np.testing.assert_allclose(flex.parameters()[-1], last - RATE * (gradient + 0.1 * last + 0.5), atol=1e-6)
