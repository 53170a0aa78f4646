"""Files of the Flex flavour: their export; `tests/flex` runs them with TensorFlow 2.19."""

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from odt_sim.cli.main import main
from odt_sim.doctor.file_checks import lost_activations
from odt_sim.errors import ExportError, ModelError
from odt_sim.export import export_model
from odt_sim.model.reading.flatbuffer import read
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.trainable import TrainableModel

REFUSAL = (
    r"m\.tflite: has the flex flavour, whose Flex ops \(\w+, \w+, \w+ and \d+ more\) LiteRT cannot run; "
    r"export the model without flavour='flex', or run the file in TensorFlow 2\.19"
)


def small_cnn() -> Any:
    body = [layers.Conv2D(2, 3, activation="relu", name="conv"), layers.Flatten()]
    return keras.Sequential([layers.Input((5, 5, 1)), *body, layers.Dense(3, name="dense")], name="cnn")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flex") / "m.tflite"
    return export_model(small_cnn(), path, loss="mse", optimizer="adam", batch_size=4, flavour="flex")


def test_flex_signatures(path: Path) -> None:
    signatures = read(path.read_bytes(), "m").signatures
    said = {key: (list(signature.inputs), sorted(signature.outputs)) for key, signature in signatures.items()}
    names = sorted(f"cnn/{layer}/{part}" for layer in ("conv", "dense") for part in ("kernel", "bias"))
    slots = [f"optimizer/{name.replace('/', '_')}_{slot}" for name in names for slot in ("momentum", "velocity")]
    arrays = ["a0", "a1", "a2", "a3"]
    assert sorted(said.pop("train")[0]) == ["learning_rate", "sample_weight", "x", "y"]
    assert sorted(signatures["train"].outputs) == [*names, "loss"]
    assert {t.shape for name, t in signatures["train"].outputs.items() if "conv" in name} == {(3, 3, 1, 2), (2,)}
    assert said == {
        "infer": (["x"], ["logits"]),
        "parameters": ([], arrays),
        "set_parameters": (arrays, ["count"]),
        "save": (["checkpoint_path"], ["checkpoint_path"]),
        "restore": (["checkpoint_path"], [*names, *slots, "optimizer/iteration"]),
    }
    assert signatures["save"].inputs["checkpoint_path"].dtype == "string"


def test_flex_file_is_refused_by_litert(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match=REFUSAL):
        TrainableModel.load(path)
    assert main(["inspect", str(path)]) == 0
    verdict = REFUSAL.replace(": ", ": does not train here: ", 1)
    assert re.search(verdict, capsys.readouterr().out)


@pytest.mark.parametrize("activation", ["relu", "relu6", "hard_tanh"])
def test_activations_after_products_without_bias_are_kept(activation: str, tmp_path: Path) -> None:
    hidden = layers.Dense(6, activation, use_bias=False, kernel_initializer=keras.initializers.RandomNormal(seed=1))
    model = keras.Sequential([layers.Input((4,)), hidden, layers.Dense(3)])
    path = export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2, flavour="flex")
    x = np.array([[9, -9, 9, 9], [-9, 9, -9, -9]], np.float32)
    logits = Interpreter(str(path)).get_signature_runner("infer")(x=x)["logits"]
    np.testing.assert_allclose(logits, model(x), rtol=1e-5)


@pytest.mark.parametrize("equation", ["bd,dk->bk", "...d,dk->...k"])
def test_activations_after_einsums_are_kept(equation: str, tmp_path: Path) -> None:
    hidden = layers.EinsumDense(equation, 6, "relu", kernel_initializer=keras.initializers.RandomNormal(seed=1))
    model = keras.Sequential([layers.Input((4,)), hidden, layers.Dense(3)])
    path = export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2, flavour="flex")
    x = np.array([[9, -9, 9, 9], [-9, 9, -9, -9]], np.float32)
    logits = Interpreter(str(path)).get_signature_runner("infer")(x=x)["logits"]
    np.testing.assert_allclose(logits, model(x), rtol=1e-5)


def test_activations_after_reshaped_products_without_bias_are_kept(tmp_path: Path) -> None:
    """One path for each kind of op that the converter leaves out or moves behind the activation."""
    x = layers.Input((3, 4))
    wide, flat = (layers.Dense(6, use_bias=False)(y) for y in (x, layers.Flatten()(x)))
    paths = [layers.Permute((2, 1))(wide), layers.Reshape((2, 3))(flat), layers.Lambda(lambda y: 1.0 * y[:, :6])(flat)]
    model = keras.Model(x, layers.Dense(3)(layers.Concatenate()([layers.Flatten()(layers.ReLU()(y)) for y in paths])))
    path = export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=None, flavour="flex")
    batch = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    logits = Interpreter(str(path)).get_signature_runner("infer")(x=batch)["logits"]
    np.testing.assert_allclose(logits, model(batch), rtol=1e-4, atol=1e-6)
    assert not list(lost_activations(read_graph(path.read_bytes(), "m"), "train"))


REFUSED = [
    (layers.Conv2D(4, 2, groups=2, name="pairs"), r"layer 'pairs': Flex ops do not train grouped convolutions; use fl"),
    (
        layers.UpSampling2D(2, name="up"),
        r"layer 'up': creates a tensor of \d+ axes, where Flex ops support at most 6; use fl",
    ),
]


@pytest.mark.parametrize(("layer", "message"), REFUSED)
def test_layers_that_flex_cannot_train_are_refused(layer: Any, message: str, tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((5, 5, 1)), layers.Conv2D(4, 2), layer, layers.Flatten(), layers.Dense(3)])
    with pytest.raises(ExportError, match=message):
        export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="sgd", flavour="flex")


def test_unknown_flavour_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="flavour: expected builtin or flex, found 'select'"):
        export_model(small_cnn(), tmp_path / "m.tflite", loss="mse", optimizer="sgd", flavour="select")
