"""Every export compares the file with its model: wrong lowerings and counted padding are refused, rounding is not."""

import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from parity.own_layers import Centered
from wrong_lowerings import scaled

from odt_sim import Device, TrainableModel
from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export import convert_saved_model, deflex, export_model, save_model, tflite_model_class
from odt_sim.export.lowering.registry import LOWERINGS
from odt_sim.export.trace.classes import BaseTFLiteModel

BATCH = 8
SETTINGS: dict[str, Any] = {"loss": "sparse_categorical_crossentropy", "optimizer": "sgd", "batch_size": BATCH}


def images() -> Any:
    parts = [layers.Conv2D(4, 3, activation="relu", name="first"), layers.MaxPooling2D(name="pool"), layers.Flatten()]
    parts.append(layers.Dense(6, "softplus", name="hidden"))
    return keras.Sequential([layers.Input((8, 7, 2)), *parts, layers.Dense(5, name="last")], name="net")


def sequential(*body: Any) -> Any:
    return keras.Sequential([layers.Input((6,)), layers.Dense(4), *body, layers.Dense(3)], name="stack")


def functional(function: Any) -> Any:
    x = layers.Input((6,))
    return keras.Model(x, layers.Dense(3)(function(layers.Dense(4)(x))), name="graph")


@pytest.mark.parametrize(
    ("op_type", "where"),
    [
        ("Softplus", "layer 'hidden', op Softplus"),
        ("MaxPool", "layer 'pool', op MaxPool"),
        ("Conv2DBackpropFilter", "layer 'first', op Conv2DBackpropFilter"),
        ("BiasAddGrad", "layer 'last', op BiasAddGrad"),
    ],
)
def test_wrong_lowering_is_refused_with_its_place(
    op_type: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOWERINGS, op_type, scaled(op_type))
    place = rf"^model 'net': the file differs from the model, first (at|between .*, and) {where}: in \S+ after .*"
    advice = r"; replace this layer or op, or write the unchecked file with check=False \(model\.check=false\), and please .*"
    with pytest.raises(ExportError, match=place + advice):
        export_model(images(), tmp_path / "m.tflite", **SETTINGS)
    assert not list(tmp_path.iterdir())


def test_unchecked_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOWERINGS, "MaxPool", scaled("MaxPool"))
    path = export_model(images(), tmp_path / "m.tflite", **SETTINGS, check=False)
    assert not TrainableModel.load(path).manifest.checked
    monkeypatch.undo()
    assert TrainableModel.load(export_model(images(), path, **SETTINGS)).manifest.checked


class Centring(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x - ops.mean(x, 0, keepdims=True)


class Noisy(layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x: Any) -> Any:
        return x + keras.random.normal(ops.shape(x), seed=self.seeds)


class Own(keras.Model):  # type: ignore[misc]
    """A class whose output depends on a position in the batch that padding, which repeats the first row, cannot take."""

    def __init__(self) -> None:
        super().__init__(name="own")
        self.dense, self.normal = layers.Dense(3), layers.BatchNormalization()

    def call(self, x: Any) -> Any:
        h = self.normal(self.dense(x))
        return h * ops.cast(1 + ops.argmax(h[:, 0]), "float32")


def built(model: Any) -> Any:
    model(np.zeros((1, 6), np.float32))
    return model


@pytest.mark.parametrize(
    ("build", "where"),
    [
        (lambda: sequential(Centring(name="centre")), "first at layer 'centre', op "),
        (lambda: sequential(layers.Lambda(lambda x: x / ops.sum(x, 0), name="share")), "first at layer 'share', op "),
        (lambda: functional(lambda h: h - ops.flip(h, 0)), "first at "),
        (lambda: sequential(Centered(name="average")), "first at layer 'average', op Mean"),  # in training only
    ],
)
def test_model_that_mixes_rows_is_refused(build: Any, where: str, tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match=f"rows that pad a partial batch count, {where}.*; export with batch_size=None"
    ):
        export_model(build(), tmp_path / "m.tflite", **SETTINGS)


def test_any_number_of_rows_needs_no_padding(tmp_path: Path) -> None:
    model = sequential(Centring())
    path = export_model(model, tmp_path / "m.tflite", **{**SETTINGS, "batch_size": None})
    x, y = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32), np.zeros(5, np.int32)
    device = Device(TrainableModel.load(path), (x, y))
    np.testing.assert_allclose(device.infer(x[:3]), model.predict(x[:3], verbose=0), atol=1e-6)


@pytest.mark.slow
def test_saved_model_that_mixes_rows_is_refused(tmp_path: Path) -> None:
    sequential(Centring()).export(tmp_path / "saved", verbose=False)
    with pytest.raises(ExportError, match="rows that pad a partial batch count"):
        export_model(tmp_path / "saved", tmp_path / "m.tflite", **SETTINGS)


@pytest.mark.parametrize(
    "build",
    [
        lambda: sequential(layers.BatchNormalization(), layers.Lambda(lambda x: 2.0 * x)),
        lambda: sequential(Noisy()),
        lambda: functional(lambda h: layers.Dropout(0.5)(h, training=True) + ops.roll(h, 1, axis=1)),
        lambda: sequential(layers.Lambda(lambda x: ops.sin(1e5 * x))),  # amplifies rounding to 1e-2
        lambda: built(Own()),
    ],
)
def test_right_file_passes_and_leaves_model_and_optimizer_unchanged(build: Any, tmp_path: Path) -> None:
    model, optimizer = build(), keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    variables = [*model.variables, *optimizer.variables]
    before = [variable.numpy() for variable in variables]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_model(model, tmp_path / "m.tflite", **{**SETTINGS, "optimizer": optimizer})
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


class Penalized(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        self.add_loss(ops.mean(x**2))
        return x


def test_loss_of_a_layer_that_counts_padding_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(
        ExportWarning, match=r"^layer 'penalized': its add_loss counts the rows that pad a partial batch"
    ):
        export_model(sequential(Penalized(name="penalized")), tmp_path / "m.tflite", **SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_model(sequential(Penalized()), tmp_path / "open.tflite", **{**SETTINGS, "batch_size": None})
        regularized = sequential(layers.ActivityRegularization(0.1), layers.Dense(4, kernel_regularizer="l2"))
        export_model(regularized, tmp_path / "m.tflite", **SETTINGS)


def test_model_that_rejects_random_rows_is_warned_of_without_an_example(tmp_path: Path) -> None:
    def build() -> Any:
        return sequential(layers.Lambda(lambda x: ops.log(ops.abs(x) - 50.0)))

    x = np.random.default_rng(0).normal(1e4, 1e3, (16, 6)).astype(np.float32)
    with pytest.warns(ExportWarning, match=r"^model 'stack': the file was not compared .*; pass a batch of your data"):
        export_model(build(), tmp_path / "m.tflite", **SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_model(build(), tmp_path / "m.tflite", **SETTINGS, example=(x, np.zeros(16, np.int32)))


@tflite_model_class
class Classes(BaseTFLiteModel):
    X_SHAPE, Y_SHAPE = (6,), (3,)

    def __init__(self) -> None:
        self.model = sequential(layers.ReLU(name="rectified"))
        self.model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))


@pytest.mark.slow
def test_class_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(Classes(), tmp_path / "saved")
    convert_saved_model(tmp_path / "saved", batch_size=BATCH)
    monkeypatch.setitem(LOWERINGS, "Relu", scaled("Relu"))
    with pytest.raises(ExportError, match=r"saved: the file differs from the model, first .*op Relu: in "):
        convert_saved_model(tmp_path / "saved", batch_size=BATCH)


@pytest.mark.slow
def test_deflexed_file_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = export_model(images(), tmp_path / "flex.tflite", **SETTINGS, flavour="flex")
    deflex(source, tmp_path / "right.tflite")
    monkeypatch.setitem(LOWERINGS, "MaxPool", scaled("MaxPool"))
    with pytest.raises(
        ExportError, match=r"flex\.tflite: the file: the file differs from the model, first .*op MaxPool"
    ):
        deflex(source, tmp_path / "wrong.tflite")
    assert not (tmp_path / "wrong.tflite").exists()
