"""A conditional valve before the head of a Keras model, and the term that trains it."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from odt_sim import Device, TrainableModel, TrainingPlan
from odt_sim.errors import ExportError
from odt_sim.export import add_valve, export_model
from odt_sim.model.weights import Weights

TERM = ["category_embedding"]
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network() -> keras.Model:
    """Return a network that passes its two features on to a head of zeros."""
    inputs = layers.Input((2,))
    h = layers.Dropout(0.0)(layers.Dense(2, kernel_initializer="identity", name="body")(inputs))
    return keras.Model(inputs, layers.Dense(2, kernel_initializer="zeros", name="head")(h), name="network")


def export(model: keras.Model, path: Path, **more: Any) -> TrainableModel:
    given = {"loss": LOSS, "optimizer": "sgd", "batch_size": 2, "terms": TERM, **more}
    return TrainableModel.load(export_model(model, path / "m.tflite", **given))


def opened(model: TrainableModel) -> Device:
    """Return a device whose valve passes features on, with the axes as category embeddings."""
    x, y = np.array([[3, 4], [0, 2]], np.float32), np.array([0, 1], np.int32)
    device = Device(model, (x, y), plan=TrainingPlan(1, 0.1))
    values = {"_normalization/gamma": 0, "_normalization/beta": 0, "category_embeddings": np.eye(2), "_dense/kernel": 2}
    layout = device.weights.layout
    tensors = [
        next((np.full(tensor.shape, values[end], np.float32) for end in values if name.endswith(end)), tensor)
        for name, tensor in zip(layout.names, device.weights.tensors(), strict=True)
    ]
    device.restore(Weights.from_tensors(layout, tensors))
    return device


@pytest.mark.slow
def test_loss_is_the_known_one(tmp_path: Path) -> None:
    """Cosines are (0.6, 0.8) and (0, 1); the features lie 5 from (3, -1), and 2 from 0; 2 squares are 1, and 8 are 4."""
    model = export(add_valve(network()), tmp_path)
    plain = np.log(2)
    angle = np.mean([np.log(1 + np.exp(0.2)), np.log(1 + np.exp(-1))])
    inputs = {"category_embedding": 1, "global_embeddings": [[3, -1], [0, 0]]}
    assert opened(model).train() == pytest.approx(plain, rel=1e-6)
    assert opened(model).train(inputs=inputs) == pytest.approx(plain + angle, rel=1e-6)
    more = {**inputs, "category_magnitude": 0.5}
    assert opened(model).train(inputs=more) == pytest.approx(plain + angle + 0.5 * 3.5, rel=1e-6)
    more = {**inputs, "category_decay": 0.1}
    assert opened(model).train(inputs=more) == pytest.approx(plain + angle + 0.05 * (2 + 8 * 4), rel=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # of the category embeddings
def test_step_agrees_with_tensorflow(tmp_path: Path) -> None:
    """A step of Keras from any weights, on the loss without the term, gives the same weights; the condition stays."""
    valved, random = add_valve(network()), np.random.default_rng(0)
    valved.set_weights([random.normal(size=weight.shape) for weight in valved.weights])
    condition = valved.get_layer("conditional_valve").condition.numpy()
    model = export(valved, tmp_path, embed=True, train_groups=["head", "body"])
    x, y = random.normal(size=(2, 2)).astype(np.float32), np.array([0, 1], np.int32)
    device = Device(model, (x, y), plan=TrainingPlan(1, 0.1))
    valved.compile(keras.optimizers.SGD(0.1), LOSS)
    assert device.train() == pytest.approx(valved.train_on_batch(x, y), rel=1e-5)
    for found, weight in zip(device.weights.tensors(), valved.weights, strict=True):
        np.testing.assert_allclose(found, weight.numpy(), rtol=0, atol=1e-6, err_msg=weight.path)
    np.testing.assert_array_equal(device.weights["conditional_valve/condition"], condition)


def test_valve_belongs_to_the_head(tmp_path: Path) -> None:
    parameters = export(add_valve(network()), tmp_path).parameters
    assert {p.group for p in parameters if p.name.startswith(("conditional_valve/", "head/"))} == {"head"}
    assert {p.group for p in parameters if p.name.startswith("body/")} == {"body"}
    assert [p.name for p in parameters if p.role == "statistic"] == ["conditional_valve/condition"]


def test_model_with_a_valve_stays_and_what_was_compiled_is_kept() -> None:
    model = network()
    model.compile("sgd", LOSS)
    valved = add_valve(model)
    assert valved.loss is LOSS
    assert add_valve(valved) is valved


def images() -> keras.Model:
    return keras.Sequential([layers.Input((4, 4, 1)), layers.Conv2D(3, 4, name="head"), layers.Flatten()])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (object, "expected a built Sequential or Functional model of Keras, found object"),
        (lambda: keras.Sequential([layers.Dense(3)]), "expected a built Sequential or Functional model"),
        (lambda: keras.Sequential([layers.Input((2,)), layers.Dense(1)]), r"needs one output .* found .*\(None, 1\)"),
        (lambda: keras.Sequential([layers.Input((5, 2)), layers.Dense(3)]), r"needs one output .*\(None, 5, 3\)"),
        (images, r"needs embeddings \[batch, features\], found shape \(None, 4, 4, 1\)"),
    ],
)
def test_models_without_a_place_for_a_valve_are_refused(model: Any, message: str) -> None:
    with pytest.raises(ExportError, match=f"^valve: .*{message}|^valve: {message}"):
        add_valve(model())


def test_term_without_a_valve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="category_embedding needs a conditional valve, and model 'network"):
        export(network(), tmp_path)


def test_squared_error_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"category_embedding needs a model .* and a cross-entropy"):
        export(add_valve(network()), tmp_path, loss="mean_squared_error")
