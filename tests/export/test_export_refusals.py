"""Models that cannot be exported are refused in one line, before the conversion."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from odt_sim.errors import ExportError
from odt_sim.export import OLDEST_KERAS, export_model


def model(*body: Any, shape: tuple[int | None, ...] = (6, 6, 2), dtype: str = "float32") -> Any:
    return keras.Sequential([layers.Input(shape, dtype=dtype), *body, layers.Flatten(), layers.Dense(3, name="last")])


def ended(*tail: Any) -> Any:
    return keras.Sequential([layers.Input((4,)), layers.Dense(3), *tail])


class TimesFirst(layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm = layers.BatchNormalization(name="bn")

    def build(self, shape: Any) -> None:
        self.norm.build((shape[1], None, shape[2]))

    def call(self, x: Any, training: bool = False) -> Any:
        return keras.ops.transpose(self.norm(keras.ops.transpose(x, (1, 0, 2)), training=training), (1, 0, 2))


def with_variable() -> Any:
    outside = tf.Variable(2.0)
    return model(layers.Lambda(lambda x: x * outside, name="double"))


def mapped(function: Any, name: str) -> Any:
    return model(layers.Lambda(function, output_shape=(6, 6, 2), name=name))


def looped(x: Any) -> Any:
    return tf.while_loop(lambda v: tf.reduce_sum(v) < 9.0, lambda v: (v * v,), (x,))[0]


def repeated(x: Any) -> Any:
    for _ in tf.range(tf.cast(x[0, 0, 0, 0], tf.int32)):
        x = x * x
    return x


def in_python(x: Any) -> Any:
    return tf.ensure_shape(tf.py_function(lambda v: 2.0 * v, [x], tf.float32), x.shape)


class Scaled(layers.Layer):  # type: ignore[misc]
    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(3,), regularizer="l1", name="scale")

    def call(self, x: Any) -> Any:
        return x * self.scale


class Lazy(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.scaled = Scaled(name="scaled")

    def call(self, x: Any) -> Any:
        return self.scaled(x)


def lazily_built() -> Any:
    lazy = Lazy()
    lazy(np.zeros((1, 3), np.float32))
    return lazy


def two_outputs() -> Any:
    x = layers.Input((4,))
    return keras.Model(x, {"kind": layers.Dense(3)(x), "size": layers.Dense(1)(x)})


def look_up() -> Any:
    x = layers.Input((), dtype="string")
    number = layers.StringLookup(vocabulary=["yes", "no"])(x)
    return keras.Model(x, layers.Dense(3)(layers.Embedding(3, 2)(number)))


def stateful() -> Any:
    memory = layers.LSTM(2, stateful=True, name="memory")
    return keras.Sequential([layers.Input((3, 2), batch_size=32), memory, layers.Dense(3)])


REFUSED: list[tuple[Any, str]] = [
    (
        lambda: model(layers.Dense(2), layers.Lambda(looped, name="loop")),
        r"layer 'loop': is a loop with a gradient whose number of iterations depends on .*give it maximum_iterations",
    ),
    (lambda: mapped(repeated, "for"), r"Lambda\.call\(\)\. Iterating over a symbolic .*layer, instead$"),
    (look_up, r"expected an input of numbers, found strings; apply StringLookup"),
    (lambda: mapped(in_python, "python"), r"layer 'python': the op EagerPyFunc .*ops instead of Python"),
    (
        lambda: mapped(lambda x: tf.cast(tf.square(tf.cast(x, tf.float16)), tf.float32), "half"),
        r"layer 'half': the op Cast computes in float16, expected float32",
    ),
    (
        lambda: mapped(lambda x: x * tf.linalg.det(x[:, :2, :2, 0])[:, tf.newaxis, tf.newaxis, tf.newaxis], "size"),
        r"layer 'size': the op MatrixDeterminant has no TFLite built-in kernel .*use keras\.ops\.cholesky",
    ),
    (
        lambda: model(layers.Dense(2, activity_regularizer=lambda x: keras.ops.max(x), name="loud")),
        r"layer 'loud': expected L1, L2 or L1L2 as its activity regularizer, found function",
    ),
    *(
        (
            lambda create=create: model(create(), shape=(6, 6, 3)),
            rf"^layer '\w+': {create.__name__} has no built-in ops; augment the data with it, before the model, or leave",
        )
        for create in (layers.RandAugment, layers.AugMix, layers.RandomElasticTransform)
    ),
    (
        lambda: model(layers.Pipeline([layers.RandomPosterization(factor=4, name="few")])),
        r"^layer 'few': RandomPosterization has no built-in ops",
    ),
    (stateful, r"layer 'memory': keeps its state between batches"),
    (with_variable, r"layer 'double': reads a variable that is not a weight"),
    (lazily_built, r"^layer 'scaled': `train` reads a tensor that a layer kept .*; create it in `__init__`"),
    *(
        (
            lambda times=times: model(TimesFirst(), shape=(times, 2)),
            rf"layer 'bn': BatchNormalization expects the batch as the first axis, found shape \[{times}, 32, 2\] for 32 "
            r"examples; call it before the transpose .*batch_size=None$",
        )
        for times in (5, 32)
    ),
    (
        lambda: model(layers.Dense(2, dtype="float64", name="double")),
        r"layer 'double': .*compute dtype float32, found float64",
    ),
    (
        lambda: keras.Sequential([layers.Dense(2)]),
        r"expected a built Keras model or a batch to build it with; pass example",
    ),
    (lambda: keras.Sequential([layers.Input((None, 2)), layers.Dense(2)]), r"fixed shape, found \(None, 2\)"),
    (lambda: keras.Sequential([layers.Input((2,)), layers.ReLU()]), r"nothing to train"),
    (lambda: 3, r"expected a built Keras"),
    (lambda: "model.keras", r"model\.keras: no such file; give"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_model_is_refused(build: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message) as error:
        export_model(build(), tmp_path / "m.tflite", loss="sparse_categorical_crossentropy", optimizer="sgd")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"loss": "hing"}, r"loss: expected .*hinge, .*a Keras loss object or a function, found 'hing'"),
    (
        {"loss": {"name": "huber", "delt": 1.0}},
        r"loss huber: .*unexpected keyword argument 'delt'.*; see keras\.losses\.Huber",
    ),
    ({"loss": 3}, r"loss: expected a name, a Keras loss or a function \(y_true, y_pred\), found 3"),
    ({"loss": ["mse", "mse"]}, r"loss: expected one for each of 1 outputs, found 2"),
    (
        {"model": two_outputs, "loss": {"kind": "mse"}},
        r"loss: expected one for each output, found none for 'size'; give it one \(with a factor of 0 in loss_weights",
    ),
    (
        {"model": two_outputs, "loss": [None, "mse"]},
        r"found none for 'kind'; .* or export a keras\.Model without this output$",
    ),
    ({"loss_weights": "half"}, r"loss_weights: expected numbers, found 'half'"),
    ({"loss": keras.losses.MeanSquaredError(reduction=None)}, r"loss mean_squared_error: .*as reduction, found None"),
    *(
        (
            {"model": lambda: keras.Sequential([layers.Input((2,)), layers.Dense(1)]), "loss": loss},
            rf"loss {loss}: expected at least two classes per example, found \[1\], for which it is always 0; "
            r"use binary_crossentropy, or end the model with one value per class, such as Dense\(2\)",
        )
        for loss in ("sparse_categorical_crossentropy", "categorical_crossentropy")
    ),
    (
        {"loss": "ctc"},
        r"loss ctc: expected an output \[frames, classes\] .*, found \[3\]; return logits for each frame",
    ),
    (
        {"model": lambda: ended(layers.Softmax(), layers.Rescaling(0.5)), "loss": "ctc"},
        r"loss ctc: expected an output \[frames, classes\]",
    ),
    (
        {"model": lambda: ended(layers.Softmax(), layers.Rescaling(0.5)), "loss": "categorical_crossentropy"},
        r"loss categorical_crossentropy: the model ends in a softmax .*from_logits=True or False",
    ),
    (
        {"model": lambda: ended(layers.Softmax()), "loss": "binary_crossentropy"},
        r"loss binary_crossentropy: the model ends in a softmax",
    ),
    (
        {"optimizer": keras.optimizers.SGD},
        r"optimizer: expected a Keras optimizer, .* found the class .*SGD; give, for example,",
    ),
    ({"optimizer": "sdg"}, r"optimizer 'sdg': not a Keras optimizer"),
    ({"optimizer": {"name": "SGD", "momentun": 0.9}}, r"optimizer \{.*momentun"),
    (
        {"optimizer": {"name": "SGD", "decay": 0.01}},
        r"optimizer SGD: decay has no effect in Keras 3; give learning_rate a",
    ),
    ({"batch_size": 0}, r"batch_size: expected a whole number from 1 to .*, or null for any, found 0"),
    ({"batch_size": 2.5}, r"batch_size: expected a whole number from 1 to .*, or null for any, found 2\.5"),
    ({"head": "lost"}, r"head: no layer 'lost' with weights; expected one of last"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=[message for _, message in SETTINGS])
def test_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    arguments = {"loss": "mse", "optimizer": "sgd", **settings}
    exported = arguments.pop("model", model)()
    with pytest.raises(ExportError, match=message):
        export_model(exported, tmp_path / "m.tflite", **arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("package", "found", "message"),
    [
        (
            "keras",
            "99.0",
            r"^keras 99\.0 is installed, but this process has already imported keras 3\.\S+; restart Python",
        ),
        ("tensorflow", "99.0", r"^tensorflow 99\.0 is installed, but this process has already imported tensorflow 2\."),
    ],
)
def test_packages_that_pip_replaced_after_their_import_are_refused(
    package: str, found: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(package, found, tmp_path, monkeypatch)
    with pytest.raises(ExportError, match=message):
        from odt_sim.export import export_model  # noqa: F401


def test_old_keras_is_refused_before_its_import(tmp_path: Path) -> None:
    installed("keras", "3.10.0", tmp_path)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from odt_sim.export import export_model"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ExportError: export needs keras>=3.15, found 3.10.0; run: pip install 'odt_sim[export]'" in done.stderr
    assert f'"keras>={OLDEST_KERAS}"' in (Path(__file__).parents[2] / "pyproject.toml").read_text()


def installed(package: str, found: str, folder: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Make a folder that says that a version of a package is installed."""
    metadata = folder / f"{package}-{found}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {found}\n")
    if monkeypatch:
        monkeypatch.syspath_prepend(folder)
