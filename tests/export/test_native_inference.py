"""Files that only infer hold the convolutions that TensorFlow's own converter writes, and compute what Keras does."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from odt_sim import TrainableModel
from odt_sim.errors import ModelError
from odt_sim.export import export_model
from odt_sim.model.editing.inference_only import INFERENCE, inference_only
from odt_sim.model.reading import flatbuffer

ROWS = 4


def separable() -> list[layers.Layer]:
    return [
        layers.ZeroPadding2D(((0, 1), (0, 1))),
        layers.DepthwiseConv2D(3, strides=2, use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(6.0),
        layers.SeparableConv2D(6, 3, padding="same", activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(3, activation="softmax"),
    ]


def pooled() -> list[layers.Layer]:
    return [
        layers.Conv2D(4, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(4, 2, dilation_rate=2, padding="same"),
        layers.BatchNormalization(scale=False),
        layers.Activation("tanh"),
        layers.AveragePooling2D(2),
        layers.Flatten(),
        layers.Dense(5, activation="relu"),
        layers.Dense(3),
    ]


def transposed() -> list[layers.Layer]:
    return [
        layers.Conv2D(4, 3, strides=2, padding="same"),
        layers.Conv2DTranspose(3, 3, strides=2, padding="same", activation="relu"),
        layers.Flatten(),
        layers.Dense(3),
    ]


class Sampling(layers.Layer):  # type: ignore[misc]
    """The sampling of a variational autoencoder, which also draws in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)


def statistics(model: keras.Model) -> None:
    """Give weights values that differ from those of a new normalization."""
    random = np.random.default_rng(0)
    for v in model.weights:
        v.assign(np.asarray(v) + random.uniform(0.1, 0.5, v.shape).astype(np.float32))


def converted(model: keras.Model, rows: int, folder: Path) -> bytes:
    """Return the model as TensorFlow's converter writes it, with constant weights."""
    module = tf.Module()
    module.held = [v.value for v in model.variables]
    module.infer = tf.function(lambda x: {"logits": model(x, training=False)})
    concrete = module.infer.get_concrete_function(tf.TensorSpec([rows, *model.input_shape[1:]]))
    tf.saved_model.save(module, folder, signatures={"infer": concrete})
    return bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder)).convert())


def exported(model: keras.Model, rows: int | None, folder: Path) -> Path:
    return export_model(model, folder / "m.tflite", loss="mse", optimizer="sgd", batch_size=rows)


def infers_like(model: keras.Model, content: bytes) -> None:
    """Compare the inference of a file with that of its model."""
    x = np.random.default_rng(2).normal(size=(ROWS, *model.input_shape[1:])).astype(np.float32)
    infer = Interpreter(model_content=content).get_signature_runner("infer")
    np.testing.assert_allclose(infer(x=x)["logits"], model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [pytest.param(ROWS, marks=pytest.mark.slow), None])
@pytest.mark.parametrize("of", [separable, pooled, transposed])
def test_ops_are_those_of_the_converter(of: Any, rows: int | None, tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([layers.Input((8, 8, 2)), *of()])
    statistics(model)
    path = exported(model, rows, tmp_path)
    content = inference_only(path.read_bytes(), "m")
    found = flatbuffer.read(content, "m")
    assert found.signatures == {"infer": TrainableModel.load(path).signatures["infer"]}
    if rows:
        expected = flatbuffer.read(converted(model, rows, tmp_path / "saved"), "expected").operators["infer"]
        biases = {"ADD": 1} if of is transposed else {}  # an op of its own
        assert found.operators["infer"] == {**expected, **biases}
    infers_like(model, content)


@pytest.mark.parametrize("rows", [ROWS, None])
def test_activation_after_a_product_without_bias_is_kept(rows: int | None, tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    head = [layers.Dense(8, use_bias=False, activation="relu"), layers.Dense(8, use_bias=False), layers.ReLU(0.1)]
    model = keras.Sequential([layers.Input((6, 6, 2)), layers.Conv2D(4, 3), layers.Flatten(), *head, layers.Dense(3)])
    infers_like(model, inference_only(exported(model, rows, tmp_path).read_bytes(), "m"))


@pytest.mark.parametrize("of", ["1D", "2D"])
def test_number_added_to_a_transposed_convolution_reaches_all_filters(of: str, tmp_path: Path) -> None:
    kind, shape = {"1D": (layers.Conv1DTranspose, (6, 2)), "2D": (layers.Conv2DTranspose, (6, 6, 2))}[of]
    model = keras.Sequential(
        [layers.Input(shape), kind(3, 2, use_bias=False), layers.Activation("hard_sigmoid"), kind(2, 2)]
    )
    content = inference_only(exported(model, ROWS, tmp_path).read_bytes(), "m")
    assert flatbuffer.read(content, "m").operators["infer"]["TRANSPOSE_CONV"] == 1
    infers_like(model, content)


def test_model_without_convolutions_keeps_its_inference(tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
    path = exported(model, ROWS, tmp_path)
    assert INFERENCE not in flatbuffer.read(path.read_bytes(), "m").metadata


def test_convolution_that_tflite_lacks_stays_in_products(tmp_path: Path) -> None:
    dilated = layers.Conv2DTranspose(3, 3, dilation_rate=2, padding="same")
    model = keras.Sequential([layers.Input((6, 6, 2)), layers.Conv2D(4, 3), dilated, layers.Flatten(), layers.Dense(3)])
    content = inference_only(exported(model, ROWS, tmp_path).read_bytes(), "m")
    operators = flatbuffer.read(content, "m").operators["infer"]
    assert (operators["CONV_2D"], operators.get("TRANSPOSE_CONV", 0)) == (1, 0)
    infers_like(model, content)


@pytest.mark.parametrize("body", [lambda: [], lambda: [layers.Conv1D(4, 3)]], ids=["dense", "convolution"])
def test_inference_that_draws_stays_in_the_trainable_file(body: Any, tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((6, 2)), *body(), layers.Flatten(), layers.Dense(3), Sampling()])
    path = exported(model, ROWS, tmp_path)
    infer = Interpreter(str(path)).get_signature_runner("infer")
    x = np.zeros((ROWS, 6, 2), np.float32)
    first, second = (infer(x=x)["logits"] for _ in range(2))
    assert np.isfinite(first).all()
    assert (first != second).all()
    with pytest.raises(ModelError, match=r"^m: cannot be reduced to inference, because 'infer' sets the variable s\d+"):
        inference_only(path.read_bytes(), "m")
