"""Models of which an example's output depends on the other examples of its batch are refused with a fixed number of rows."""

import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from parity.own_layers import Centered, Quantized, Scaled

from odt_sim import Device, TrainableModel
from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export import export_model
from odt_sim.export.interface import interface_of
from odt_sim.export.row_mixing import check_rows_alone
from odt_sim.export.sources import model_of
from odt_sim.export.steps import trace_infer

BATCH = 8


class Centring(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x - ops.mean(x, 0, keepdims=True)


class Noisy(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x + keras.random.normal(ops.shape(x))


class Own(keras.Model):  # type: ignore[misc]
    def __init__(self, *, mixes: bool) -> None:
        super().__init__(name="own")
        self.dense, self.normal, self.mixes = layers.Dense(3), layers.BatchNormalization(), mixes

    def call(self, x: Any) -> Any:
        h = self.normal(self.dense(x))
        return h * ops.cast(ops.argmax(h[:, 0]), "float32") if self.mixes else h


def sequential(*own: Any) -> Any:
    return keras.Sequential([layers.Input((6,)), layers.Dense(4), *own, layers.Dense(3)], name="stack")


def functional(function: Any) -> Any:
    x = layers.Input((6,))
    return keras.Model(x, layers.Dense(3)(function(layers.Dense(4)(x))), name="graph")


def built(model: Any) -> Any:
    model(np.zeros((1, 6), np.float32))
    return model


def checked(model: Any) -> None:
    interface = interface_of(model)
    check_rows_alone(model, trace_infer(model, interface, BATCH), BATCH)


@pytest.mark.parametrize(
    ("build", "where"),
    [
        (lambda: sequential(Centring(name="centre")), "layer 'centre'"),
        (lambda: sequential(layers.Lambda(lambda x: x / ops.sum(x, 0), name="share")), "layer 'share'"),
        (lambda: functional(lambda h: h - ops.flip(h, 0)), "model 'graph', in one of operation 'flip', operation"),
        (lambda: built(Own(mixes=True)), "model 'own'"),
    ],
)
def test_code_that_mixes_rows_is_refused(build: Any, where: str) -> None:
    with pytest.raises(
        ExportError, match=f"^{where}.*: an example's output depends on .*; export with batch_size=None,"
    ):
        checked(build())


@pytest.mark.parametrize(
    "build",
    [
        lambda: sequential(layers.BatchNormalization(), layers.Lambda(lambda x: 2.0 * x)),
        lambda: sequential(Scaled(), Centered(), Quantized()),  # statistics in training alone, and a metric
        lambda: sequential(Noisy()),
        lambda: functional(lambda h: layers.Dropout(0.5)(h, training=True) + ops.roll(h, 1, axis=1)),
        lambda: built(Own(mixes=False)),
    ],
)
def test_other_code_passes_and_leaves_the_model_unchanged(build: Any) -> None:
    model = build()
    before = [variable.numpy() for variable in model.variables]
    checked(model)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_large_model_that_mixes_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odt_sim.export.row_mixing.LARGE", 10)
    with pytest.raises(ExportError, match=r"^layer 'centre': an example's output depends on the other"):
        checked(sequential(Centring(name="centre")))


def test_saved_model_that_mixes_rows_is_refused(tmp_path: Path) -> None:
    sequential(Centring()).export(tmp_path / "saved", verbose=False)
    with pytest.raises(ExportError, match=r"^model 'saved_model': an example's output depends on the other"):
        checked(model_of(tmp_path / "saved"))


def test_any_number_of_rows_needs_no_padding(tmp_path: Path) -> None:
    model, settings = sequential(Centring()), {"loss": "sparse_categorical_crossentropy", "optimizer": "sgd"}
    with pytest.raises(ExportError, match="an example's output depends on the other"):
        export_model(model, tmp_path / "m.tflite", **settings, batch_size=BATCH)
    path = export_model(model, tmp_path / "m.tflite", **settings, batch_size=None)
    x, y = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32), np.zeros(5, np.int32)
    device = Device(TrainableModel.load(path), (x, y))
    np.testing.assert_allclose(device.infer(x[:3]), model.predict(x[:3], verbose=0), atol=1e-6)


class Penalized(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        self.add_loss(ops.mean(x**2))
        return x


def test_loss_of_a_layer_that_counts_padding_is_warned_of(tmp_path: Path) -> None:
    settings = {"loss": "mse", "optimizer": "sgd"}
    with pytest.warns(
        ExportWarning, match=r"^layer 'penalized': its add_loss counts the rows that pad a partial batch"
    ):
        export_model(sequential(Penalized(name="penalized")), tmp_path / "m.tflite", batch_size=BATCH, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_model(sequential(Penalized()), tmp_path / "open.tflite", batch_size=None, **settings)
        regularized = sequential(layers.ActivityRegularization(0.1), layers.Dense(4, kernel_regularizer="l2"))
        export_model(regularized, tmp_path / "m.tflite", batch_size=BATCH, **settings)
