"""Model classes and user-defined functions with several inputs or outputs, and with CTC: LiteRT agrees with Keras."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel
from odt_sim.errors import ExportError
from odt_sim.export import BaseTFLiteModel, convert_saved_model, export_model, save_model, tflite_model_class
from odt_sim.export.keras.ctc import ctc

ROWS = 4


def network() -> keras.Model:
    """Return a compiled model of the inputs `b` and `a` and the outputs `kind` and `size`."""
    keras.utils.set_random_seed(1)
    inputs = [keras.Input((4,), name="b"), keras.Input((2,), name="a")]
    hidden = layers.Dense(5, activation="tanh")(layers.Concatenate()(inputs))
    outputs = [layers.Dense(3, name="kind", activation="softmax")(hidden), layers.Dense(1, name="size")(hidden)]
    model = keras.Model(inputs, outputs)
    losses = {"kind": "categorical_crossentropy", "size": "mse"}
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), losses, loss_weights={"kind": 1.0, "size": 0.5})
    return model


def class_of(**members: Any) -> type:
    """Return a class as users write it, for the model of `network`."""
    shapes = {"X_SHAPE": {"b": [4], "a": [2]}, "Y_SHAPE": {"kind": [3], "size": [1]}, "BATCH_SIZE": ROWS}
    start = {"__init__": lambda self: setattr(self, "model", network())}
    return tflite_model_class(type("Several", (BaseTFLiteModel,), {**shapes, **start, **members}))


def of_functions() -> type:
    """Return a class of functions with their own signatures, which needs no shapes."""
    x = tf.TensorSpec([ROWS, 4], name="x_b"), tf.TensorSpec([ROWS, 2], name="x_a")
    y = tf.TensorSpec([ROWS, 3], name="y_kind"), tf.TensorSpec([ROWS, 1], name="y_size")

    @tf.function(input_signature=[*x, *y])
    def train(self: Any, x_b: Any, x_a: Any, y_kind: Any, y_size: Any) -> Any:
        return self.model.train_step(([x_b, x_a], [y_kind, y_size]))

    @tf.function(input_signature=x)
    def infer(self: Any, x_b: Any, x_a: Any) -> Any:
        kind, size = self.model([x_b, x_a])
        return {"logits_kind": kind, "logits_size": size}

    start = {"__init__": lambda self: setattr(self, "model", network())}
    return tflite_model_class(type("Several", (BaseTFLiteModel,), {**start, "train": train, "infer": infer}))


def rows() -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    random = np.random.default_rng(0)
    x = {name: random.normal(size=(ROWS, size)).astype(np.float32) for name, size in (("b", 4), ("a", 2))}
    return x, {"kind": np.eye(3, dtype=np.float32)[[0, 2, 1, 1]], "size": np.ones((ROWS, 1), np.float32)}


def loaded(model: Any, folder: Path, **options: Any) -> TrainableModel:
    save_model(model, folder)
    return TrainableModel.from_content(convert_saved_model(folder), **options)


@pytest.mark.slow
@pytest.mark.parametrize("make", [class_of, of_functions])
def test_steps_agree_with_keras(make: Any, tmp_path: Path) -> None:
    own = make()()
    model, (x, y) = loaded(own, tmp_path), rows()
    assert model.manifest is not None
    assert (model.manifest.batch_size, model.manifest.inputs) == (ROWS, ("b", "a"))
    device = Device(model, (x, y), test=(x, y))
    for _ in range(3):
        expected = own.model.train_on_batch([x["b"], x["a"]], [y["kind"], y["size"]], return_dict=True)["loss"]
        assert device.train_batch(x, y) == pytest.approx(expected, rel=1e-5)
    for found, weight in zip(device.weights.tensors(), own.model.weights, strict=True):
        np.testing.assert_allclose(found, weight.numpy(), atol=1e-5)
    kind, size = own.model.predict_on_batch([x["b"], x["a"]])
    outputs = device.infer((x["b"], x["a"]))  # in the order of the class
    np.testing.assert_allclose(outputs["kind"], kind, atol=1e-5)
    np.testing.assert_allclose(outputs["size"], size, atol=1e-5)
    cross_entropy, squares = -np.log(kind[y["kind"] == 1]).mean(), np.square(size - 1).mean()
    figures = device.evaluate()
    assert figures["loss"] == pytest.approx(cross_entropy + 0.5 * squares, rel=1e-4)
    assert figures["loss_size"] == pytest.approx(squares, rel=1e-4)


class Plain(tf.Module):
    """Linear regressions of two targets from two inputs, without Keras."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.ones([2, 1]))

    @tf.function(input_signature=[tf.TensorSpec([1, 1], name=f"{side}_{i}") for side in "xy" for i in "ab"])
    def train(self, x_a: Any, x_b: Any, y_a: Any, y_b: Any) -> dict[str, Any]:
        rows, targets = tf.concat([x_a, x_b], 0), tf.concat([y_a, y_b], 0)
        loss = tf.reduce_sum((rows * self.kernel - targets) ** 2)
        self.kernel.assign_sub(0.1 * 2 * (rows * self.kernel - targets) * rows)
        return {"loss": loss}

    @tf.function(input_signature=[tf.TensorSpec([1, 1], name=f"x_{i}") for i in "ab"])
    def infer(self, x_a: Any, x_b: Any) -> dict[str, Any]:
        return {"logits_a": x_a * self.kernel[:1], "logits_b": x_b * self.kernel[1:]}

    @tf.function(input_signature=[])
    def parameters(self) -> dict[str, Any]:
        return {"a0": self.kernel}

    @tf.function(input_signature=[tf.TensorSpec([2, 1], name="a0")])
    def restore(self, a0: Any) -> dict[str, Any]:
        self.kernel.assign(a0)
        return self.parameters()


def test_module_of_several_inputs_and_outputs_trains(tmp_path: Path) -> None:
    model = loaded(Plain(), tmp_path, loss="mean_squared_error")
    x, y = {"a": [[1.0]], "b": [[2.0]]}, {"a": [[3.0]], "b": [[0.0]]}
    device = Device(model, *[({k: np.float32(v) for k, v in x.items()}, {k: np.float32(v) for k, v in y.items()})] * 3)
    assert device.evaluate()["loss"] == pytest.approx(4 + 4)
    assert device.train(1).tolist() == [8.0]
    np.testing.assert_allclose(device.weights.vector, [1 + 0.4, 1 - 0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"Y_SHAPE": [3]},
            r"Several\.train .*: Y_SHAPE: expected a mapping with a shape for each of kind, size, found",
        ),
        ({"X_SHAPE": {"a": [2]}}, r"X_SHAPE: expected a mapping with a shape for each of b, a, found"),
        ({"X_SHAPE": [[4], [2]]}, r"Several\.X_SHAPE: expected the shape of an example, or a mapping of shapes"),
    ],
)
def test_missing_shapes_are_refused(members: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message):
        save_model(class_of(**members)(), tmp_path)


@pytest.mark.slow
def test_advised_export_of_the_keras_model_works(tmp_path: Path) -> None:
    path, (x, y) = export_model(network(), tmp_path / "m.tflite", batch_size=ROWS), rows()
    expected = network().train_on_batch([x["b"], x["a"]], [y["kind"], y["size"]], return_dict=True)["loss"]
    assert Device(TrainableModel.load(path), (x, y)).train_batch(x, y) == pytest.approx(expected, rel=1e-5)


def transcriber(loss: Any) -> Any:
    """Return an object for CTC, whose `loss` evaluates it."""

    @tf.function(input_signature=[tf.TensorSpec([2, 5, 3], name="logits"), tf.TensorSpec([2, 2], name="y")])
    def example_losses(self: Any, logits: Any, y: Any) -> dict[str, Any]:
        return {"losses": ctc(y, logits)}

    keras.utils.set_random_seed(1)
    members = {"X_SHAPE": [5, 4], "Y_SHAPE": [2], "BATCH_SIZE": 2, "loss": example_losses}
    own = tflite_model_class(type("Transcriber", (BaseTFLiteModel,), members))()
    own.model = keras.Sequential([keras.Input((5, 4)), layers.Dense(3)])
    own.model.compile(keras.optimizers.SGD(0.1), loss)
    return own


@pytest.mark.slow
def test_ctc_of_keras_is_refused_and_the_advice_agrees_with_it(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    y = np.array([[1, 2], [2, 0]], np.int32)
    of_keras = transcriber("ctc")
    save_model(of_keras, tmp_path / "refused")
    with pytest.raises(
        ExportError, match=r"`train`: .*for CTC, compile with the function odt_sim\.export\.keras\.ctc\.ctc"
    ):
        convert_saved_model(tmp_path / "refused")
    exported = TrainableModel.load(export_model(of_keras.model, tmp_path / "m.tflite", batch_size=2, example=(x, y)))
    own, floats = loaded(transcriber(ctc), tmp_path / "own"), y.astype(np.float32)
    devices = [Device(own, (x, floats), test=(x, floats)), Device(exported, (x, y), test=(x, y))]
    for _ in range(2):
        before = [device.evaluate()["loss"] for device in devices]
        expected = of_keras.model.train_on_batch(x, y)
        np.testing.assert_allclose(before, expected, rtol=1e-5)
        losses = devices[0].train_batch(x, floats), devices[1].train_batch(x, y)
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_name_of_several_for_a_single_input_is_refused(tmp_path: Path) -> None:
    x, y = tf.TensorSpec([1, 2], name="x_only"), tf.TensorSpec([1, 2], name="y")
    train = tf.function(lambda self, x, y: self.model.train_step((x, y)), input_signature=[x, y])
    own = tflite_model_class(type("One", (BaseTFLiteModel,), {"X_SHAPE": [2], "train": train}))()
    own.model = keras.Sequential([keras.Input((2,)), layers.Dense(2)])
    own.model.compile("sgd", "mse")
    with pytest.raises(ExportError, match="x_only: expected x as the name of a single tensor; rename it"):
        save_model(own, tmp_path)
