"""Model classes and user-defined functions: LiteRT agrees with TensorFlow."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import own_models
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray
from own_models import BATCH
from slow import slow_except

from odt_sim.device.device import Device
from odt_sim.errors import ExportError, FileError
from odt_sim.export import (
    BaseTFLiteModel,
    convert_saved_model,
    save_model,
    save_tflite_model,
    tflite_model_class,
)
from odt_sim.model.trainable import TrainableModel

Batch = dict[str, NDArray[Any]]


@dataclass
class Pair:
    """A user's object, and the interpreter of its file.

    Attributes:
        model: The object.
        saved: Its SavedModel.
        content: Its file.
        interpreter: A fresh interpreter of the file.
    """

    model: Any
    saved: Path
    content: bytes
    interpreter: Interpreter

    def call(self, signature: str, **inputs: Any) -> dict[str, NDArray[Any]]:
        return dict(self.interpreter.get_signature_runner(signature)(**inputs))

    def listed(self, signature: str, prefix: str) -> list[NDArray[Any]]:
        values = self.call(signature)
        return [values[f"{prefix}{i}"] for i in range(len(values))]

    def agree(self, signature: str, batch: Batch) -> None:
        expected = {name: value.numpy() for name, value in getattr(self.model, signature)(**batch).items()}
        found = self.call(signature, **batch)
        assert set(found) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pair]:
    """Return a function that exports a class once and returns its pair."""
    made: dict[str, Pair] = {}

    def make(name: str) -> Pair:
        if name not in made:
            keras.utils.clear_session(free_memory=False)  # layers are numbered from the start, whatever ran before
            keras.utils.set_random_seed(5)
            model, saved = getattr(own_models, name)(), tmp_path_factory.mktemp("saved")
            if name in ("Custom", "Sequences"):  # what was traced before is traced anew
                model.train(**batches(name, 1)[0])
            save_model(model, saved)
            content = convert_saved_model(saved, batch_size=None if name == "Sequences" else BATCH)
            made[name] = Pair(model, saved, content, Interpreter(model_content=content, num_threads=1))
        return made[name]

    return make


def batches(name: str, steps: int) -> list[Batch]:
    random = np.random.default_rng(0)
    shape = {"Pictures": (6, 6, 2), "Sequences": (4, 3)}.get(name, (5,))
    made: list[Batch] = []
    for _ in range(steps):
        x = random.normal(size=(BATCH, *shape)).astype(np.float32)
        y: NDArray[Any] = random.integers(0, 2, BATCH).astype(np.int32)
        if name == "Pictures":
            y = np.eye(3, dtype=np.float32)[y]
        elif name in ("Keras2", "Sequences"):
            y = random.normal(size=(BATCH, 2 if name == "Keras2" else 1)).astype(np.float32)
        weight = {"sample_weight": random.uniform(0.5, 1.5, BATCH).astype(np.float32)} if name == "Plain" else {}
        made.append({"x": x, "y": y, **weight})
    return made


def slots_of(model: Any) -> list[NDArray[Any]]:
    """What an author's object remembers between steps, in the order in which the steps come to it."""
    if isinstance(model, own_models.Plain):
        return [v.numpy() for v in (*model.sums, model.steps)]
    network, optimizer = (getattr(model, "model", None) or model.network), getattr(model, "optimizer", None)
    optimizer = optimizer or network.optimizer
    skipped = [optimizer.learning_rate] + ([] if "Adam" in type(optimizer).__name__ else [optimizer.iterations])
    random = [layer.seed_generator.state for layer in network.layers if isinstance(layer, keras.layers.Dropout)]
    return [v.numpy() for v in (*random, *(v for v in optimizer.variables if not any(v is s for s in skipped)))]


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_except(["Keras2", "Plain"], ["Pictures", "Keras2", "Custom", "Plain"]))
def test_five_steps_agree_with_tensorflow(name: str, pair: Any) -> None:
    """Compare each step's loss, every weight, and all slots."""
    both = pair(name)
    before = both.listed("parameters", "a")
    for batch in batches(name, 5):
        both.agree("train", batch)
    after = [v.numpy() for v in both.model.parameters().values()]
    moved = [float(np.abs(new - old).max()) for new, old in zip(after, before, strict=True)]
    limit = 1e-5 * max(moved) + 1e-7
    assert max(moved) > 1e-3
    for found, expected in zip(both.listed("parameters", "a"), after, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=limit)
    slots = slots_of(both.model)
    for found, expected in zip(both.listed("optimizer_state", "s"), slots, strict=True):
        assert found.dtype == (np.int32 if expected.dtype.kind == "i" else expected.dtype)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=limit)
    both.agree("infer", {"x": batches(name, 1)[0]["x"]})


@pytest.mark.slow
def test_class_without_batch_size_takes_any_number_of_rows(pair: Any) -> None:
    both = pair("Sequences")
    random = np.random.default_rng(0)
    for rows in (8, 3, 1, 8):
        x = random.normal(size=(rows, 4, 3)).astype(np.float32)
        both.agree("train", {"x": x, "y": random.normal(size=(rows, 1)).astype(np.float32)})
    for found, expected in zip(both.listed("parameters", "a"), both.model.model.weights, strict=True):
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    for found, expected in zip(both.listed("optimizer_state", "s"), slots_of(both.model), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    model = TrainableModel.from_content(both.content)
    assert (model.fixed_batch, model.batch_size, model.random_states) == (False, 32, (0,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Pictures", "Plain"])
def test_further_signatures_agree_with_tensorflow(name: str, pair: Any) -> None:
    both = pair(name)
    both.agree("validate", {key: value for key, value in batches(name, 1)[0].items() if key in ("x", "y")})


def test_initialize_becomes_a_signature(pair: Any) -> None:
    interpreter = Interpreter(model_content=pair("Pictures").content, num_threads=1)
    interpreter.get_signature_runner("initialize")()
    for value in interpreter.get_signature_runner("parameters")().values():
        np.testing.assert_array_equal(value, np.ones_like(value))


def test_only_weights_and_slots_carry_over_between_steps(pair: Any) -> None:
    """An interpreter that trained on other batches continues a device's weights and slots like a fresh one."""
    content, (first, *others) = pair("Pictures").content, batches("Pictures", 4)
    fresh, used = (Interpreter(model_content=content, num_threads=1) for _ in range(2))
    state = {key: fresh.get_signature_runner(key)() for key in ("parameters", "optimizer_state")}
    for batch in others:
        used.get_signature_runner("train")(**batch)
    used.get_signature_runner("restore")(**state["parameters"])
    used.get_signature_runner("restore_optimizer_state")(**state["optimizer_state"])
    for batch in (first, first):
        one, other = (interpreter.get_signature_runner("train")(**batch) for interpreter in (fresh, used))
        assert one == other
        assert float(one["loss"]) != pytest.approx(float(one["accuracy"]))


def test_manifest_describes_a_model_class(pair: Any) -> None:
    models = {name: TrainableModel.from_content(pair(name).content) for name in ("Pictures", "Keras2", "Plain")}
    manifests = {name: model.manifest for name, model in models.items()}
    said = {
        name: (m.name, m.loss, m.from_logits, m.optimizer.get("name"), m.batch_size) for name, m in manifests.items()
    }
    assert said == {
        "Pictures": ("Pictures", "categorical_crossentropy", False, "SGD", BATCH),
        "Keras2": ("Keras2", "mean_squared_error", False, None, BATCH),  # its step is its own
        "Plain": ("Plain", None, True, None, BATCH),
    }
    roles = {name: [(p.name.partition("/")[2], p.role, p.group) for p in m.parameters] for name, m in manifests.items()}
    assert roles["Pictures"] == [
        ("conv2d/kernel", "trainable", "body"),
        ("conv2d/bias", "trainable", "body"),
        ("batch_normalization/gamma", "trainable", "norm"),
        ("batch_normalization/beta", "trainable", "norm"),
        ("batch_normalization/moving_mean", "statistic", "norm"),
        ("batch_normalization/moving_variance", "statistic", "norm"),
        ("dense/kernel", "trainable", "head"),
        ("dense/bias", "trainable", "head"),
    ]
    assert [p.shape for p in manifests["Keras2"].parameters] == [(2,), (4, 2), (4,), (5, 4)]
    assert roles["Plain"] == [
        ("kernel", "frozen", "body"),
        ("kernel", "trainable", "head"),
        ("bias", "trainable", "head"),
    ]
    assert models["Pictures"].random_states == (0,)
    assert "optimizer_state" in models["Plain"].signatures


def test_device_trains_and_evaluates_a_model_class(pair: Any, tmp_path: Path) -> None:
    path = tmp_path / "keras2.tflite"
    save_tflite_model(pair("Keras2").content, path)
    x = np.random.default_rng(0).normal(size=(22, 5)).astype(np.float32)
    device = Device(TrainableModel.load(path), (x, x[:, :2]), test=(x, x[:, :2]))
    before = device.evaluate("test")["loss"]
    assert len(device.train(epochs=10)) == 60
    assert device.evaluate("test")["loss"] < before / 2


@pytest.mark.slow
def test_tensorflow_runs_the_saved_model(pair: Any) -> None:
    both = pair("Pictures")
    loaded = tf.saved_model.load(str(both.saved))
    weights = {name: tf.constant(value) for name, value in both.call("parameters").items()}
    assert set(loaded.signatures["restore"](**weights)) == set(weights)
    batch = batches("Pictures", 1)[0]
    named = {name: tf.constant(value) for name, value in batch.items()}
    expected = both.call("infer", x=batch["x"])["logits"]
    np.testing.assert_allclose(loaded.signatures["infer"](x=named["x"])["logits"], expected, atol=1e-6)
    np.testing.assert_allclose(loaded.infer(named["x"])["logits"], expected, atol=1e-6)
    losses = [float(loaded.signatures["train"](**named)["loss"]) for _ in range(20)]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_save_model_returns_the_weights(tmp_path: Path) -> None:
    model = own_models.Plain()
    weights = save_model(model, tmp_path / "saved")
    assert [weight.shape for weight in weights] == [(5, 4), (4, 2), (2,)]
    np.testing.assert_array_equal(weights[0], model.frozen.numpy())
    assert not [name for name in vars(model) if "signature" in name]


def test_signature_keys_select_signatures(pair: Any) -> None:
    saved, required = pair("Plain").saved, ["train", "infer", "parameters", "restore"]
    model = TrainableModel.from_content(convert_saved_model(saved, signature_keys=required))
    assert set(model.signatures) == {*required, "optimizer_state", "restore_optimizer_state"}
    content = convert_saved_model(saved, signature_keys=["infer"])
    assert list(Interpreter(model_content=content).get_signature_list()) == ["infer"]
    with pytest.raises(ExportError, match=r"no signature 'predict', found .*train"):
        convert_saved_model(saved, signature_keys=["predict"])


@pytest.mark.slow
def test_foreign_saved_model_converts(tmp_path: Path) -> None:
    """TensorFlow itself saved it: names come from the variables, and the manifest omits unknown facts."""
    model = own_models.Plain()
    functions = {
        key: getattr(model, key).get_concrete_function() for key in ("train", "infer", "parameters", "restore")
    }
    tf.saved_model.save(model, str(tmp_path / "theirs"), signatures=functions)
    converted = TrainableModel.from_content(convert_saved_model(tmp_path / "theirs"))
    assert converted.manifest is not None
    assert (converted.name, converted.loss, converted.manifest.optimizer) == ("theirs", None, {})
    assert [p.name for p in converted.parameters] == ["frozen/kernel", "dense/kernel", "dense/bias"]
    interpreter = Interpreter(model_content=converted.content, num_threads=1)
    for batch in batches("Plain", 2):
        expected = float(model.train(**batch)["loss"])
        assert float(interpreter.get_signature_runner("train")(**batch)["loss"]) == pytest.approx(expected, abs=1e-6)
    kernel = interpreter.get_signature_runner("parameters")()["a1"]
    np.testing.assert_allclose(kernel, model.kernel.numpy(), atol=1e-6)


class OfKeras2(tf.Module):
    """A saved Keras 2 class: `train` returns the mean loss since the last reset."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable([2.0], name="dense/kernel")
        self.model = tf.Module()
        self.model.keras_api = tf.Module()
        loss = tf.Module()
        loss.total, loss.count = (tf.Variable(0.0, trainable=False) for _ in range(2))
        self.model.keras_api.metrics = [loss]

    @tf.function(input_signature=[tf.TensorSpec([1], name="x"), tf.TensorSpec([1], name="y")])
    def train(self, x: Any, y: Any) -> dict[str, Any]:
        (loss,) = self.model.keras_api.metrics
        loss.total.assign_add(tf.reduce_sum(tf.abs(self.weight * x - y)))
        loss.count.assign_add(1.0)
        self.weight.assign_sub(0.1 * x)
        return {"loss": loss.total / loss.count}

    @tf.function(input_signature=[tf.TensorSpec([1], name="x")])
    def infer(self, x: Any) -> dict[str, Any]:
        return {"logits": self.weight * x}

    @tf.function(input_signature=[])
    def parameters(self) -> dict[str, Any]:
        return {"a0": self.weight}

    @tf.function(input_signature=[tf.TensorSpec([1], name="a0")])
    def restore(self, a0: Any) -> dict[str, Any]:
        self.weight.assign(a0)
        return {"a0": self.weight}


def test_running_loss_of_keras_2_becomes_the_batch_loss(tmp_path: Path) -> None:
    model = OfKeras2()
    functions = {
        key: getattr(model, key).get_concrete_function() for key in ("train", "infer", "parameters", "restore")
    }
    tf.saved_model.save(model, str(tmp_path), signatures=functions)
    converted = TrainableModel.from_content(convert_saved_model(tmp_path))
    train = Interpreter(model_content=converted.content, num_threads=1).get_signature_runner("train")
    one = np.ones(1, np.float32)
    losses = [float(train(x=one, y=0 * one)["loss"]) for _ in range(3)]
    np.testing.assert_allclose(losses, [2.0, 1.9, 1.8], rtol=1e-6)
    assert "optimizer_state" not in converted.signatures


def small(**methods: Any) -> Any:
    """Return an object of a class with these methods instead of the default ones."""
    shapes = {"X_SHAPE": [2], "Y_SHAPE": [2], "BATCH_SIZE": 1}
    small = tflite_model_class(type("Small", (BaseTFLiteModel,), {**shapes, **methods}))()
    small.model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, name="layer")])
    small.model.compile(optimizer="sgd", loss="mse")
    return small


@pytest.mark.slow
def test_learning_rate_schedule_is_followed(tmp_path: Path) -> None:
    model = small()
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.25])
    model.model.compile(optimizer=keras.optimizers.SGD(schedule), loss="mse")
    weights = save_model(model, tmp_path)
    converted = TrainableModel.from_content(convert_saved_model(tmp_path))
    assert converted.manifest is not None
    assert (converted.manifest.optimizer["name"], converted.manifest.optimizer.get("learning_rate")) == ("SGD", None)
    interpreter = Interpreter(model_content=converted.content, num_threads=1)
    batch = {"x": np.zeros((1, 2), np.float32), "y": np.ones((1, 2), np.float32)}
    biases = [weights[1]]  # the gradient of a bias b is b - 1
    for rate in (0.5, 0.5, 0.25):
        interpreter.get_signature_runner("train")(**batch)
        biases.append(interpreter.get_signature_runner("parameters")()["a1"])
        np.testing.assert_allclose(biases[-1], biases[-2] - rate * (biases[-2] - 1), atol=1e-6)
    assert int(interpreter.get_signature_runner("optimizer_state")()["s0"]) == 3


def determinant(self: Any, x: Any, y: Any) -> dict[str, Any]:
    return {"loss": tf.reduce_mean(y) + tf.linalg.det(tf.matmul(x, x, transpose_a=True))}


def fails(self: Any, x: Any, y: Any) -> dict[str, Any]:
    return {"loss": x @ y @ tf.zeros([7, 1])}


REFUSED = [
    (
        {"train": determinant},
        r"`train`: .*the op MatrixDeterminant has no TFLite built-in kernel and no lowering; use .*",
    ),
    ({"train": lambda self, x, y: self.model(x)}, r"Small\.train: expected to return a dictionary"),
    ({"train": fails}, r"Small\.train cannot be traced: .*"),
    (
        {"train": lambda self, x, y, temperature: {}},
        r"Small\.train: unknown shape of argument 'temperature'",
    ),
    ({"parameters": lambda self: {"w": tf.zeros(2)}, "restore": lambda self, w: None}, r"as a0, a1, \.\.\., found 'w'"),
    ({"validate": lambda self, x: {"y": tf.strings.as_string(x)}}, r"`validate`: .*the op AsString has no"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("methods", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_unconvertible_function_is_refused_in_one_line(methods: Any, message: str, tmp_path: Path) -> None:
    def both() -> bytes:
        save_model(small(**methods), tmp_path)
        return convert_saved_model(tmp_path)

    with pytest.raises(ExportError, match=message) as error:
        both()
    assert "\n" not in str(error.value)


class Unsigned(tf.Module):
    """Functions without argument shapes."""

    @tf.function
    def train(self, x: Any) -> Any:
        return {"loss": x}

    infer = parameters = restore = train


def test_object_without_functions_or_shapes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"Module: no method 'train'; expected train, infer, parameters, restore"):
        save_model(tf.Module(), tmp_path)
    with pytest.raises(ExportError, match=r"Unsigned\.train: unknown shapes .*tf\.function and an input_signature"):
        save_model(Unsigned(), tmp_path)


def test_unusable_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"not a readable SavedModel .*give the directory of a SavedModel"):
        convert_saved_model(tmp_path / "gone")
    with pytest.raises(ExportError, match=r"file.*cannot write the SavedModel"):
        save_model(small(), tmp_path / "file" / "saved")
    with pytest.raises(FileError, match=r"m\.tflite: cannot write it"):
        save_tflite_model(b"", tmp_path / "file" / "m.tflite")
