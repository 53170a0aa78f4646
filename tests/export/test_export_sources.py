"""Further sources of `export_model`: files that Keras wrote, and SavedModels."""

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers
from keras.src.legacy.saving import legacy_h5_format

from odt_sim.errors import ExportError, FileError
from odt_sim.export import export_model, zoo
from odt_sim.export.keras.checks import check_model
from odt_sim.model.trainable import TrainableModel

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras, where it saves, of numpy 2
BATCH, RATE = 4, 0.1
SETTINGS: dict[str, Any] = {
    "loss": "categorical_crossentropy",
    "optimizer": {"name": "SGD", "momentum": 0.9},
    "batch_size": BATCH,
}


@pytest.fixture(scope="module")
def network() -> Any:
    keras.utils.set_random_seed(4)
    return keras.Sequential(
        [
            layers.Input((6, 6, 2)),
            layers.Conv2D(3, 3, activation="relu", name="conv"),
            layers.MaxPooling2D(2),
            layers.BatchNormalization(name="norm"),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax", name="classifier"),
        ],
        name="network",
    )


@pytest.fixture(scope="module")
def exported(network: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SavedModel of Keras' `export` for serving."""
    folder = tmp_path_factory.mktemp("serving") / "network"
    network.export(str(folder), verbose=False)
    return folder


class Serving(keras.Model):
    """Train the serving function of another model: statistics stay, Dropout is inactive."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def call(self, x: Any) -> Any:
        return self.network(x, training=False)


def serving_twin(network: Any) -> Any:
    twin = keras.models.clone_model(network)
    twin.set_weights(network.get_weights())
    model = Serving(twin)
    model.compile(
        optimizer=keras.optimizers.SGD(RATE, momentum=0.9), loss="categorical_crossentropy", jit_compile=False
    )
    return model


@pytest.mark.slow
def test_serving_saved_model_trains_like_keras(network: Any, exported: Path, tmp_path: Path) -> None:
    path = export_model(exported, tmp_path / "m.tflite", train_groups=["head"], **SETTINGS)
    model = TrainableModel.load(path)
    manifest = model.manifest
    assert manifest is not None
    assert (manifest.name, manifest.loss, manifest.from_logits) == ("network", "categorical_crossentropy", False)
    assert {(p.name, p.role, p.group) for p in model.parameters} == {
        ("network/conv/kernel", "trainable", "body"),
        ("network/conv/bias", "trainable", "body"),
        ("network/norm/gamma", "trainable", "norm"),
        ("network/norm/beta", "trainable", "norm"),
        ("network/norm/moving_mean", "frozen", "norm"),
        ("network/norm/moving_variance", "frozen", "norm"),
        ("network/classifier/kernel", "trainable", "head"),
        ("network/classifier/bias", "trainable", "head"),
    }
    twin, interpreter, random = serving_twin(network), Interpreter(str(path), num_threads=1), np.random.default_rng(0)
    one, rate = np.ones(BATCH, np.float32), np.float32(RATE)
    train = interpreter.get_signature_runner("train")
    for _ in range(5):
        x = random.normal(size=(BATCH, 6, 6, 2)).astype(np.float32)
        y = np.eye(3, dtype=np.float32)[random.integers(0, 3, BATCH)]
        twin.reset_metrics()
        expected = twin.train_on_batch(x, y)
        assert float(train(x=x, y=y, sample_weight=one, learning_rate=rate)["loss"]) == pytest.approx(
            expected, abs=2e-6
        )
    values = interpreter.get_signature_runner("parameters")()
    found = {p.name.partition("/")[2]: values[f"a{i}"] for i, p in enumerate(model.parameters)}
    for v in twin.network.weights:
        np.testing.assert_allclose(found[v.path.partition("/")[2]], v.numpy(), atol=2e-6)
    interpreter.get_signature_runner("train_head")(x=x, y=y, sample_weight=one, learning_rate=rate)
    after = interpreter.get_signature_runner("parameters")()
    changed = [p.group for i, p in enumerate(model.parameters) if not np.array_equal(after[f"a{i}"], values[f"a{i}"])]
    assert changed == ["head", "head"]


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_keras_file_is_exported_as_its_model(suffix: str, tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((4,)), layers.Dense(2, name="dense")])
    file = tmp_path / f"model{suffix}"
    model.save(file)
    path = export_model(file, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2)
    parameters = Interpreter(str(path)).get_signature_runner("parameters")()
    np.testing.assert_array_equal(parameters["a0"], model.layers[0].kernel.numpy())


@pytest.mark.slow
@pytest.mark.parametrize(("version", "suffix"), [(1, ".weights.h5"), (2, "_no_top.h5")])
def test_keras_applications_weights_become_a_frozen_backbone(version: int, suffix: str, tmp_path: Path) -> None:
    kind = {1: keras.applications.MobileNet, 2: keras.applications.MobileNetV2}[version]
    trained = kind(input_shape=(32, 32, 3), alpha=0.35 if version == 2 else 0.25, include_top=False, weights=None)
    trained.set_weights([np.full(v.shape, 0.01 * i, np.float32) for i, v in enumerate(trained.weights)])
    file = tmp_path / f"mobilenet{suffix}"
    if suffix == "_no_top.h5":  # the format of the files that keras.applications downloads
        with h5py.File(file, "w") as group:
            legacy_h5_format.save_weights_to_hdf5_group(group, trained)
    else:
        trained.save_weights(file)
    alpha = 0.35 if version == 2 else 0.25
    model = zoo.mobilenet((32, 32, 3), 5, alpha, version, weights=str(file), frozen=True)
    assert [v.path for v in model.trainable_weights] == ["classifier/kernel", "classifier/bias"]
    for v, own in zip(model.weights, trained.weights, strict=False):
        np.testing.assert_array_equal(v.numpy(), own.numpy())
    x = np.random.default_rng(0).uniform(size=(2, 32, 32, 3)).astype(np.float32)
    features = trained(2 * x - 1, training=False).numpy().mean((1, 2))
    kernel, bias = (v.numpy() for v in model.trainable_weights)
    np.testing.assert_allclose(model(x, training=True), features @ kernel + bias, rtol=1e-4, atol=1e-6)
    assert len(zoo.mobilenet((32, 32, 3), 5, alpha, version, weights=str(file)).trainable_weights) > 2


class Odd(tf.Module):
    """SavedModel signatures, none of them for serving."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")])
    def train(self, x: Any) -> dict[str, Any]:
        return {"y": 2 * x}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x"), tf.TensorSpec([None, 2], name="y")])
    def two(self, x: Any, y: Any) -> dict[str, Any]:
        return {"z": x + y}


def saved(signatures: tuple[str, ...], path: Path) -> Path:
    module = Odd()
    tf.saved_model.save(module, str(path), signatures={key: getattr(module, key) for key in signatures})
    return path


def of_keras_2(path: Path, metadata: str = '{"keras_version": "2.15.0"}') -> Path:
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.attrs["keras_version"] = np.bytes_("2.2.4")
        return path
    with ZipFile(path, "w") as file:
        file.writestr("metadata.json", metadata)
    return path


def test_model_of_keras_2_is_refused() -> None:
    legacy = type("Sequential", (), {"__module__": "tf_keras.src.engine.sequential"})
    with pytest.raises(ExportError, match=r"expected a model of Keras 3, found one of tf_keras, Keras 2; .*\.h5"):
        check_model(legacy(), None)


REFUSED = [
    (lambda folder: folder / "gone.keras", r"gone\.keras: no such file; give a Keras model, a \.keras"),
    (lambda folder: write(folder / "m.txt"), r"m\.txt: expected a file that ends in \.keras, \.h5"),
    (
        lambda folder: of_keras_2(folder / "m.keras"),
        r"m\.keras: expected a file of Keras 3, found one of Keras 2\.15\.0; .*\.h5",
    ),
    (
        lambda folder: of_keras_2(folder / "m.h5"),
        r"m\.h5: expected a file of Keras 3, found one of Keras 2\.2\.4; build .* model\.load_weights",
    ),
    (
        lambda folder: of_keras_2(folder / "m.keras", "[3]"),
        r"m\.keras: Keras cannot load a whole model from it .*model\.save",
    ),
    (lambda folder: write(folder / "m.keras"), r"m\.keras: Keras cannot load a whole model from it .*model\.save"),
    (lambda folder: folder, r"not a readable SavedModel .*give the directory of a SavedModel"),
    (lambda folder: saved(("train",), folder / "s"), r"'train'; use odt_sim\.export\.convert_saved_model"),
    (lambda folder: saved(("two",), folder / "s"), r"one input and one output, found 2 and 1"),
    (lambda folder: saved((), folder / "s"), r"expected a signature 'serving_default', found none"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_unusable_source_is_refused(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message) as error:
        export_model(make(tmp_path), tmp_path / "m.tflite", loss="mse", optimizer="sgd")
    assert "\n" not in str(error.value)


def test_source_is_not_overwritten(network: Any, tmp_path: Path) -> None:
    path = tmp_path / "my.keras"
    network.save(path)
    content = path.read_bytes()
    with pytest.raises(FileError, match=r"my\.keras: is the input file, which writing would overwrite; choose another"):
        export_model(path, path, **SETTINGS)
    assert path.read_bytes() == content


def write(path: Path) -> Path:
    path.write_text("nothing")
    return path
