"""Properties of every exported file: its signatures, its manifest, and training in a fresh interpreter."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from odt_sim.device.device import Device
from odt_sim.export import convert_saved_model, export_model, save_model
from odt_sim.model.editing.initial_weights import with_initial_weights
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights

BATCH = 8


def small_cnn() -> Any:
    keras.utils.set_random_seed(5)
    return keras.Sequential(
        [
            layers.Input((6, 6, 1)),
            layers.Conv2D(3, 3, activation="relu", name="conv"),
            layers.LayerNormalization(name="norm"),
            layers.Flatten(),
            layers.Dense(4, activation="relu", name="hidden"),
            layers.Dense(3, name="classifier"),
        ],
        name="small",
    )


@pytest.fixture(scope="module")
def adam(twins: Any) -> Any:
    """A model with optimizer slots; tests keep its interpreter and weights unchanged."""
    return twins(small_cnn(), optimizer=keras.optimizers.Adam(0.05), name="small_adam")


@pytest.fixture(scope="module")
def loaded(adam: Any) -> TrainableModel:
    return TrainableModel.load(adam.path)


def test_signatures_follow_the_contract(loaded: TrainableModel) -> None:
    said = {
        key: {t.name: (t.shape, t.dtype) for t in [*signature.inputs.values(), *signature.outputs.values()]}
        for key, signature in loaded.signatures.items()
    }
    assert said["train"] == {
        "x": ((BATCH, 6, 6, 1), "float32"),
        "y": ((BATCH,), "int32"),
        "sample_weight": ((BATCH,), "float32"),
        "learning_rate": ((), "float32"),
        "loss": ((), "float32"),
    }
    assert said["infer"] == {"x": ((BATCH, 6, 6, 1), "float32"), "logits": ((BATCH, 3), "float32")}
    shapes = [tuple(v.shape) for v in small_cnn().weights]
    assert said["parameters"] == {f"a{i}": (shape, "float32") for i, shape in enumerate(shapes)}
    assert said["restore"].items() >= said["parameters"].items()
    slots = {"s0": ((), "int32"), **{f"s{i + 1}": (s, "float32") for i, s in enumerate(2 * shapes)}}
    assert {name: dtype for name, (_, dtype) in said["optimizer_state"].items()} == {
        name: dtype for name, (_, dtype) in slots.items()
    }
    assert said["restore_optimizer_state"].items() >= said["optimizer_state"].items()


def test_file_has_only_built_in_ops(loaded: TrainableModel) -> None:
    ops = {op for counts in loaded.operators.values() for op in counts}
    assert "BATCH_MATMUL" in ops
    assert not [op for op in ops if op.startswith(("Flex", "CUSTOM"))]


def test_manifest_describes_the_model(adam: Any, loaded: TrainableModel) -> None:
    manifest = loaded.manifest
    assert manifest is not None
    assert (manifest.name, manifest.loss, manifest.from_logits) == (
        "small_adam",
        "sparse_categorical_crossentropy",
        True,
    )
    assert manifest.batch_size == BATCH
    assert manifest.optimizer["name"] == "Adam"
    assert manifest.optimizer["learning_rate"] == 0.05
    assert not manifest.plain_sgd
    assert [(p.name, p.shape, p.role, p.group) for p in manifest.parameters] == [
        ("small/conv/kernel", (3, 3, 1, 3), "trainable", "body"),
        ("small/conv/bias", (3,), "trainable", "body"),
        ("small/norm/gamma", (3,), "trainable", "norm"),
        ("small/norm/beta", (3,), "trainable", "norm"),
        ("small/hidden/kernel", (48, 4), "trainable", "body"),
        ("small/hidden/bias", (4,), "trainable", "body"),
        ("small/classifier/kernel", (4, 3), "trainable", "head"),
        ("small/classifier/bias", (3,), "trainable", "head"),
    ]


def test_fresh_interpreter_has_the_exported_weights_and_logits(adam: Any) -> None:
    model = small_cnn()
    for value, v in zip(adam.listed("parameters", "a"), model.weights, strict=True):
        np.testing.assert_array_equal(value, v.numpy())
    x = np.random.default_rng(0).normal(size=(BATCH, 6, 6, 1)).astype(np.float32)
    np.testing.assert_allclose(adam.call("infer", x=x)["logits"], model(x).numpy(), atol=1e-6)


def test_restored_weights_and_slots_continue_bit_for_bit(adam: Any) -> None:
    def steps(interpreter: Interpreter, count: int, seed: int) -> list[float]:
        random = np.random.default_rng(seed)
        train = interpreter.get_signature_runner("train")
        one, rate = np.ones(BATCH, np.float32), np.float32(0.05)
        return [
            float(
                train(
                    x=random.normal(size=(BATCH, 6, 6, 1)).astype(np.float32),
                    y=random.integers(0, 3, BATCH).astype(np.int32),
                    sample_weight=one,
                    learning_rate=rate,
                )["loss"]
            )
            for _ in range(count)
        ]

    first, second = (Interpreter(str(adam.path), num_threads=1) for _ in range(2))
    steps(first, 3, seed=1)
    state = {key: first.get_signature_runner(key)() for key in ("parameters", "optimizer_state")}
    assert int(state["optimizer_state"]["s0"]) == 3
    second.get_signature_runner("restore")(**state["parameters"])
    second.get_signature_runner("restore_optimizer_state")(**state["optimizer_state"])
    assert steps(first, 2, seed=2) == steps(second, 2, seed=2)
    for name, value in first.get_signature_runner("parameters")().items():
        np.testing.assert_array_equal(value, second.get_signature_runner("parameters")()[name])


def test_partial_batch_trains_where_zero_rows_give_nan(tmp_path: Path) -> None:
    """The mean over an example without words is 0 / 0, so padding rows must not be zeros."""
    words = [layers.Input((4,), dtype="int32"), layers.Embedding(6, 3, mask_zero=True), layers.GlobalAveragePooling1D()]
    network = keras.Sequential([*words, layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    path = export_model(network, tmp_path / "m.tflite", loss=loss, optimizer="sgd", batch_size=BATCH)
    x, y = np.array([[1, 2, 0, 0], [5, 0, 0, 0], [3, 3, 4, 1]], np.int32), np.array([0, 2, 1], np.int32)
    device = Device(TrainableModel.load(path), (x, y))
    device.train_batch(x, y, learning_rate=0.1)
    network.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss, jit_compile=False)
    network.train_on_batch(x, y)
    for found, expected in zip(device.parameters().tensors(), network.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_integer_weights_are_not_parameters(tmp_path: Path) -> None:
    """An adapted Normalization has a counter that no step reads."""
    x = np.array([[1.0, 20.0], [3.0, -20.0], [8.0, 0.0]], np.float32)
    normalization = layers.Normalization()
    normalization.adapt(x)
    network = keras.Sequential([layers.Input((2,)), normalization, layers.Dense(1)])
    path = export_model(network, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2)
    device = Device(TrainableModel.load(path), (x, x[:, 0]))
    assert [parameter.dtype for parameter in device.model.parameters] == ["float32"] * 4
    np.testing.assert_allclose(device.infer(x), network(x), atol=1e-6)


@pytest.mark.slow
def test_export_leaves_model_and_optimizer_unchanged(tmp_path: Path) -> None:
    model, optimizer = small_cnn(), keras.optimizers.SGD(0.1, momentum=0.9)
    before = [v.numpy() for v in model.weights]
    export_model(model, tmp_path / "m.tflite", loss="mse", optimizer=optimizer, batch_size=2)
    assert not optimizer.built
    for v, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(v.numpy(), value)
    assert [p.name for p in tmp_path.iterdir()] == ["m.tflite"]


def test_loss_by_name_takes_softmax_output_as_probabilities(tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3, name="dense"), layers.Softmax()])
    path = export_model(model, tmp_path / "m.tflite", loss="categorical_crossentropy", optimizer="sgd", head="dense")
    manifest = TrainableModel.load(path).manifest
    assert manifest is not None
    assert (manifest.from_logits, manifest.plain_sgd, manifest.batch_size) == (False, True, 32)


class Wide(tf.Module):
    """A function of the user with int64, bool, int8 and a scalar weight at its border."""

    def __init__(self) -> None:
        self.kernel = tf.Variable([[1.0, -1.0]])
        self.scale = tf.Variable(1.0)
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.odd = tf.Variable(False, trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([2, 1], tf.int8), tf.TensorSpec([2], tf.int64)])
    def train(self, x: Any, y: Any) -> Any:
        self.steps.assign_add(1)
        self.odd.assign(tf.logical_not(self.odd))
        rate = tf.cast(self.steps, tf.float32) + tf.cast(self.odd, tf.float32)
        self.kernel.assign_sub(rate * tf.reduce_sum(tf.cast(x, tf.float32)) * tf.ones([1, 2]))
        self.scale.assign(self.scale * 0.5)
        return {"loss": tf.reduce_sum(tf.cast(y, tf.float32))}

    @tf.function(input_signature=[tf.TensorSpec([2, 1], tf.int8)])
    def infer(self, x: Any) -> Any:
        logits = self.scale * tf.cast(x, tf.float32) @ self.kernel
        return {"logits": logits, "classes": tf.argmax(logits, 1), "positive": logits[:, 0] > 0.0}

    @tf.function(input_signature=[])
    def parameters(self) -> Any:
        return {"a0": self.kernel, "a1": self.scale}

    @tf.function(input_signature=[tf.TensorSpec([1, 2]), tf.TensorSpec([])])
    def restore(self, a0: Any, a1: Any) -> Any:
        self.kernel.assign(a0)
        self.scale.assign(a1)
        return self.parameters()


@pytest.mark.slow
def test_wide_integers_and_booleans_cross_the_border_as_int32(tmp_path: Path) -> None:
    save_model(Wide(), tmp_path)
    model = TrainableModel.from_content(convert_saved_model(tmp_path))
    tensors = [t for s in model.signatures.values() for t in [*s.inputs.values(), *s.outputs.values()]]
    assert {t.dtype for t in tensors} == {"float32", "int32"}
    interpreter = Interpreter(model_content=model.content, num_threads=1)

    def call(signature: str, **inputs: Any) -> dict[str, Any]:
        return {name: v.tolist() for name, v in interpreter.get_signature_runner(signature)(**inputs).items()}

    x, y = np.array([[2], [-1]], np.int32), np.array([3, 4], np.int32)
    assert call("infer", x=x) == {"logits": [[2.0, -2.0], [-1.0, 1.0]], "classes": [0, 1], "positive": [1, 0]}
    assert [call("train", x=x, y=y)["loss"] for _ in range(3)] == [7.0] * 3
    assert sorted(call("optimizer_state").values()) == [1, 3]
    assert call("parameters") == {"a0": [[1.0 - 8.0, -1.0 - 8.0]], "a1": 0.125}  # rates 2, 2 and 4
    interpreter.get_signature_runner("restore_optimizer_state")(s0=np.int32(0), s1=np.int32(0))
    assert list(call("optimizer_state").values()) == [0, 0]


def test_scalar_weight_becomes_an_initial_value(tmp_path: Path) -> None:
    save_model(Wide(), tmp_path)
    content = convert_saved_model(tmp_path)
    model = TrainableModel.from_content(content)
    weights = Weights(model.layout, np.array([3.0, 4.0, 5.0], np.float32))
    interpreter = Interpreter(model_content=with_initial_weights(content, weights), num_threads=1)
    found = interpreter.get_signature_runner("parameters")()
    assert {name: value.tolist() for name, value in found.items()} == {"a0": [[3.0, 4.0]], "a1": 5.0}
