"""The advice of refusals works: a refused model or setting, changed as its error says, exports and trains as Keras does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from advised_models import (
    Callless,
    Computed,
    Multiplied,
    Network,
    NoWeights,
    OwnLoss,
    Reconstructing,
    Silent,
    Stepped,
    Unweighted,
    X,
    Y,
    beside,
    boxes,
    built,
    by_cholesky,
    clip,
    clip_by_shape,
    dense,
    determinant,
    lazily_built,
    looped,
    masked,
    mixture,
    of_examples,
    own,
    penalized,
    read,
    repeated,
    shared_names,
    stack,
    triplet,
    two_outputs,
)
from ai_edge_litert.interpreter import Interpreter
from keras import layers, losses, ops
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.export import export_model
from odt_sim.export.keras.ctc import ctc

ROWS, STEPS, RATE = 4, 2, 0.05
LEFT_OUT = object()


@dataclass(frozen=True)
class Advice:
    """A refused export, and the same export changed as the error says.

    Attributes:
        message: A pattern of the error, which includes the advice.
        model: Returns the refused model.
        settings: The settings of the refused export, besides an optimizer and mean squared errors.
        advised: Returns the changed model; None for the same.
        changed: The changed settings; `LEFT_OUT` removes one.
    """

    message: str
    model: Callable[[], Any]
    settings: dict[str, Any] = field(default_factory=dict)
    advised: Callable[[], Any] | None = None
    changed: dict[str, Any] = field(default_factory=dict)


MSE = losses.MeanSquaredError()
FRAMES = (5, 3)

ADVICE = {
    "any number of rows": Advice(
        "depends on the other .*; export with batch_size=None", stack(), {"loss": clip}, changed={"batch_size": None}
    ),
    "number of rows": Advice(
        r"use keras\.ops\.shape\(x\)\[0\] instead of x\.shape\[0\]$",
        stack(),
        {"loss": clip_by_shape, "batch_size": None},
        changed={"loss": clip},
    ),
    "shape of targets": Advice(
        r"or pass a batch as example=\(x, y\) if its y has another shape than \[5\]",
        stack(last=5),
        {"loss": boxes},
        changed={"example": (X, np.zeros((2, 5, 2), np.float32))},
    ),
    "shape of other targets": Advice(
        r"expected one value for each .*, or give the shape of the targets with example=\(x, y\)",
        stack(last=4),
        {"loss": mixture},
        changed={"example": (X, np.zeros((2, 2), np.float32))},
    ),
    "a value for each example": Advice(
        r"expected one value for each example .*; return values \[batch, ...\]",
        stack(),
        {"loss": lambda y, p: ops.sum(y - p, 0)},
        changed={"loss": lambda y, p: ops.sum(ops.square(y - p), -1)},
    ),
    "circle": Advice(
        "use your own function, such as a triplet loss, with batch_size=None",
        stack(),
        {"loss": losses.Circle(), "example": (X, Y[:, 0])},
        changed={"loss": triplet, "batch_size": None},
    ),
    "reduction": Advice(
        "as reduction, found None; leave it out",
        stack(),
        {"loss": losses.MeanSquaredError(reduction=None)},
        changed={"loss": MSE},
    ),
    "one class": Advice(
        "use binary_crossentropy, or end",
        stack(last=1),
        {"loss": losses.SparseCategoricalCrossentropy(from_logits=True)},
        changed={"loss": losses.BinaryCrossentropy(from_logits=True)},
    ),
    "two classes": Advice(
        r"or end the model with one value per class, such as Dense\(2\)",
        stack(last=1),
        {"loss": losses.SparseCategoricalCrossentropy(from_logits=True)},
        stack(last=2),
    ),
    "ctc": Advice(
        "return logits for each frame",
        stack(),
        {"loss": losses.CTC()},
        stack(shape=FRAMES),
        {"example": (np.zeros((2, *FRAMES)), np.zeros((2, 2), np.int32))},
    ),
    "labels of ctc": Advice(
        "give class numbers from 1, followed by zeros",
        stack(shape=FRAMES),
        {"loss": losses.CTC(), "example": (np.zeros((2, *FRAMES)), np.zeros((2, 2, 3), np.int32))},
        changed={"example": (np.zeros((2, *FRAMES)), np.zeros((2, 2), np.int32))},
    ),
    "own ctc": Advice(
        r'give the loss "ctc", or call odt_sim\.export\.keras\.ctc\.ctc\(y, logits\) in your own function',
        stack(shape=FRAMES),
        {
            "loss": lambda y, p: tf.nn.ctc_loss(
                tf.cast(y, tf.int32), p, [2] * p.shape[0], [5] * p.shape[0], logits_time_major=False, blank_index=0
            ),
            "example": (np.zeros((2, *FRAMES)), np.zeros((2, 2), np.int32)),
        },
        changed={"loss": lambda y, p: ctc(y, p)},
    ),
    "logits": Advice(
        "pass a Keras loss object with from_logits=True or False",
        stack(last=[layers.Dense(3, activation="softmax"), layers.Rescaling(0.5)]),
        {"loss": "categorical_crossentropy"},
        stack(last=[layers.Dense(3, activation="softmax"), layers.Rescaling(0.5)]),
        {"loss": losses.CategoricalCrossentropy()},
    ),
    "no loss": Advice(r"found None; pass loss=\.\.\.", stack(), {"loss": None}, changed={"loss": MSE}),
    "a factor of 0": Advice(
        r"give it one \(with a factor of 0 in loss_weights",
        lambda: two_outputs("u", "v"),
        {"loss": {"u": MSE}},
        changed={"loss": {"u": MSE, "v": MSE}, "loss_weights": {"u": 1.0, "v": 0.0}},
    ),
    "a model without the output": Advice(
        r"or export a keras\.Model without this output",
        lambda: two_outputs("u", "v"),
        {"loss": [MSE, None]},
        lambda: two_outputs("u"),
        {"loss": MSE},
    ),
    "a compiled loss": Advice(
        r"found none; pass loss=\.\.\., or compile with one",
        Computed,
        {"loss": None, "example": (X, Y)},
        changed={"loss": MSE},
    ),
    "targets of a class": Advice(
        r"pass a batch as example=\(x, y\), or", built(OwnLoss), {"loss": None}, changed={"example": (X, Y)}
    ),
    "x alone": Advice(
        r"or as example=x if fit takes x alone",
        built(Reconstructing),
        {"loss": None, "example": None, "batch_size": None},
        changed={"example": X},
    ),
    "y of a step": Advice(
        r"; if it takes y, pass a batch as example=\(x, y\)",
        Stepped,
        {"loss": None, "example": X},
        changed={"example": (X, Y)},
    ),
    "weights of a loss": Advice(r"use it \(its argument\)", NoWeights, {"loss": None, "example": (X, Y)}, OwnLoss),
    "weights of a step": Advice(
        r"use it \(x, y, sample_weight = keras\.utils\.unpack_x_y_sample_weight",
        Unweighted,
        {"loss": None, "example": (X, Y)},
        Stepped,
    ),
    "a step without weights": Advice(
        "or export with batch_size=None", Unweighted, {"loss": None, "example": (X, Y)}, changed={"batch_size": None}
    ),
    "loss of a step": Advice(
        "found total; add it to the dictionary", Silent, {"loss": None, "example": (X, Y)}, Stepped
    ),
    "embed of a class": Advice(
        "which takes x; leave embed out",
        Stepped,
        {"loss": None, "example": (X, Y), "embed": True},
        changed={"embed": LEFT_OUT},
    ),
    "embed of losses of layers": Advice(
        "loss from x; leave embed out",
        penalized,
        {"loss": None, "example": X, "embed": True, "batch_size": None},
        changed={"embed": LEFT_OUT},
    ),
    "embed beside": Advice("leave embed out", beside, {"embed": True}, changed={"embed": LEFT_OUT}),
    "embed of another head": Advice(
        "or name the last layers as the head", beside, {"embed": True}, changed={"head": ["hidden", "last"]}
    ),
    "a call": Advice(r"expected a method call\(self, x\)", Callless, {"example": (X, Y)}, Network),
    "an example": Advice(
        "pass a suitable batch as example", Network, {"example": ({"a": X}, Y)}, changed={"example": (X, Y)}
    ),
    "a batch to build with": Advice(r"pass example=\(x, y\)", Network, {"example": None}, changed={"example": (X, Y)}),
    "an Input": Advice("or start the model with an Input", lambda: keras.Sequential([layers.Dense(3)]), {}, stack()),
    "a full shape": Advice("give Input the full shape", stack(shape=(None, 4)), {}, stack(shape=(2, 4))),
    "an example of a shape": Advice(
        "or pass a batch of that shape as example=x",
        stack(shape=(None, 4)),
        {},
        changed={"example": np.zeros((2, 3, 4), np.float32)},
    ),
    "strings": Advice(
        "apply StringLookup or TextVectorization before", lambda: read(strings=True), {}, lambda: read(strings=False)
    ),
    "weights to train": Advice("add a layer with trainable weights", stack(last=[layers.ReLU()]), {}, stack()),
    "a regularizer": Advice(
        r"create it in `__init__`, such as with keras\.regularizers\.L1",
        lazily_built,
        {},
        lambda: lazily_built(keras.regularizers.L1(0.01)),
    ),
    "stateful": Advice(
        "set stateful=False",
        lambda: keras.Sequential([layers.Input((3, 2), batch_size=4), layers.LSTM(2, stateful=True), layers.Dense(3)]),
        {},
        stack(lambda: layers.LSTM(2, stateful=False), shape=(3, 2)),
    ),
    "float64": Advice(
        "compute dtype float32, found float64; set its dtype",
        stack(lambda: layers.Dense(2, dtype="float64")),
        {},
        stack(lambda: layers.Dense(2, dtype="float32")),
    ),
    "grouped convolution": Advice(
        "use flavour='builtin'",
        stack(lambda: layers.Conv2D(4, 3, groups=2), layers.Flatten, shape=(6, 6, 2)),
        {"flavour": "flex"},
        changed={"flavour": "builtin"},
    ),
    "groups": Advice(r"write \['head'\]", stack(dense), {"train_groups": "head"}, changed={"train_groups": ["head"]}),
    "an empty group": Advice(
        "in 'norm'; leave it out", stack(), {"train_groups": ["norm"]}, changed={"train_groups": LEFT_OUT}
    ),
    "the path of a head": Advice(
        "expected one of a/same, b/same", lambda: shared_names("a", "b"), {"head": "same"}, changed={"head": "b/same"}
    ),
    "class weights": Advice(
        "has no classes; leave it out", stack(), {"class_weight": {0: 2.0}}, changed={"class_weight": LEFT_OUT}
    ),
    "positions": Advice(
        "choose a loss with a value per position",
        masked,
        {"loss": of_examples},
        changed={"loss": lambda y, p: ops.mean(ops.square(y - p), -1)},
    ),
    "a removed mask": Advice(
        r"or remove the mask, such as with \* 1\.0 on the output",
        masked,
        {"loss": of_examples},
        lambda: masked(kept=False),
    ),
    "an activity regularizer": Advice(
        "use one of these, or export",
        stack(lambda: layers.Dense(3, activity_regularizer=lambda x: 0.1 * ops.max(x))),
        {},
        stack(lambda: layers.Dense(3, activity_regularizer="l2")),
    ),
    "any activity regularizer": Advice(
        "or export with batch_size=None",
        stack(lambda: layers.Dense(3, activity_regularizer=lambda x: 0.1 * ops.max(x))),
        changed={"batch_size": None},
    ),
    "mixed rows": Advice(
        r"export with batch_size=None \(model.batch_size=null\), which needs no padding",
        stack(own(lambda x: x - ops.mean(x, 0))),
        changed={"batch_size": None},
    ),
    "fixed rows": Advice(
        "cannot take any number of rows; give a batch size",
        stack(lambda: layers.Dropout(0.5, noise_shape=(ROWS, 1), seed=1)),
        {"batch_size": None},
        changed={"batch_size": ROWS},
    ),
    "no fixed rows": Advice(
        "or take fixed rows out of the model",
        stack(lambda: layers.Dropout(0.5, noise_shape=(ROWS, 1), seed=1)),
        {"batch_size": None},
        stack(lambda: layers.Dropout(0.5, noise_shape=(None, 1), seed=1)),
    ),
    "products across rows": Advice(
        "or multiply along another axis",
        stack(own(lambda x: tf.math.cumprod(x))),
        {"batch_size": None},
        stack(own(lambda x: tf.math.cumprod(x, 1))),
    ),
    "iterations": Advice(
        "give it maximum_iterations", stack(dense, own(looped)), {}, stack(dense, own(lambda x: looped(x, 3)))
    ),
    "numbers in Python": Advice(
        "use fixed numbers, or a Keras layer, instead",
        stack(own(lambda x: repeated(x, lambda x: tf.cast(x[0, 0], tf.int32)))),
        {},
        stack(own(lambda x: repeated(x, 3))),
    ),
    "Python": Advice(
        r"layer 'own': the op EagerPyFunc .*write it with TensorFlow or Keras ops instead of Python",
        stack(own(lambda x: tf.ensure_shape(tf.py_function(lambda v: 2.0 * v, [x], tf.float32), x.shape))),
        {},
        stack(own(lambda x: 2.0 * x)),
    ),
    "half floats": Advice(
        "expected float32; cast to that",
        stack(own(lambda x: tf.cast(tf.square(tf.cast(x, tf.float16)), tf.float32))),
        {},
        stack(own(lambda x: tf.square(tf.cast(x, tf.float32)))),
    ),
    "a determinant": Advice(r"use keras\.ops\.cholesky", stack(own(determinant)), {}, stack(own(by_cholesky))),
    "a product of vectors": Advice(
        r"use keras\.ops\.sum\(a \* b\)",
        stack(own(lambda x: x + ops.dot(x[0], x[1]))),
        {"batch_size": None},
        stack(own(lambda x: x + ops.sum(x[0] * x[1]))),
    ),
    "complex numbers": Advice(
        "compute with real and imaginary parts",
        stack(own(lambda x: ops.abs(ops.real(tf.math.atan(tf.complex(x, x)))))),
        {},
        stack(own(lambda x: ops.arctan(ops.real(tf.complex(x, x))))),
    ),
    "explicit padding": Advice(
        "put a ZeroPadding2D layer before it",
        stack(
            own(lambda x: tf.nn.max_pool2d(x, 2, 1, [[0, 0], [1, 0], [1, 0], [0, 0]])), layers.Flatten, shape=(4, 4, 1)
        ),
        {},
        stack(
            lambda: layers.ZeroPadding2D(((1, 0), (1, 0))),
            lambda: layers.MaxPooling2D(2, 1),
            layers.Flatten,
            shape=(4, 4, 1),
        ),
    ),
    "large equations": Advice(
        "supports up to 16 unknowns, found 17; use fewer",
        stack(own(lambda x: x + ops.sum(ops.inv(ops.eye(17) + ops.sum(x) * 0.0)))),
        {"batch_size": None},
        stack(own(lambda x: x + ops.sum(ops.inv(ops.eye(16) + ops.sum(x) * 0.0)))),
    ),
    "a variable": Advice(
        "make it a weight of a layer",
        stack(lambda: Multiplied(weight=False)),
        {},
        stack(lambda: Multiplied(weight=True)),
    ),
    "decay": Advice(
        "or set weight_decay",
        stack(),
        {"optimizer": {"name": "SGD", "decay": 0.01}},
        changed={"optimizer": keras.optimizers.SGD(RATE, weight_decay=0.01)},
    ),
    "settings of an optimizer": Advice(
        "correct it, or leave it out",
        stack(),
        {"optimizer": keras.optimizers.Adam(RATE, beta_1=1.0)},
        changed={"optimizer": keras.optimizers.Adam(RATE)},
    ),
}
FAST = ("number of rows", "x alone", "a value for each example")


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an export, with defaults."""
    defaults = {"loss": MSE, "optimizer": keras.optimizers.SGD(RATE), "batch_size": ROWS}
    return {key: value for key, value in {**defaults, **settings}.items() if value is not LEFT_OUT}


def drawn(random: np.random.Generator, spec: dict[str, Any]) -> NDArray[Any]:
    shape = (ROWS, *spec["shape"][1:])
    return (random.normal(size=shape) if spec["dtype"] == np.float32 else random.integers(1, 3, shape)).astype(
        spec["dtype"]
    )


def train_like_keras(model: Any, path: Path, settings: dict[str, Any]) -> None:
    """Train a model in Keras and its file on random batches, and compare losses and weights."""
    compiled = {key: settings.get(key) for key in ("loss", "loss_weights", "optimizer")}
    model.compile(**compiled, run_eagerly=True)
    interpreter, random = Interpreter(str(path), num_threads=1), np.random.default_rng(0)
    train = interpreter.get_signature_runner("train")
    details = train.get_input_details()
    for _ in range(STEPS):
        batch = {key: drawn(random, details[key]) for key in details if key[0] in "xy"}
        if isinstance(settings["loss"], losses.SparseCategoricalCrossentropy | losses.BinaryCrossentropy):
            batch["y"] %= 2
        found = train(**batch, sample_weight=np.ones(ROWS, np.float32), learning_rate=np.float32(RATE))["loss"]
        names = [key for key in ("y", "y_u", "y_v") if key in batch]
        y = [batch[key] for key in names]
        model.reset_metrics()
        if isinstance(settings.get("example"), np.ndarray) and settings["loss"] is None:
            expected = model.fit(batch["x"], batch_size=ROWS, shuffle=False, verbose=0).history["loss"][0]
        else:
            expected = np.ravel(model.train_on_batch(batch["x"], y if len(y) > 1 else y[0]))[0]
        assert float(found) == pytest.approx(float(expected), rel=1e-5, abs=1e-6)
    after = interpreter.get_signature_runner("parameters")()
    for i, weight in enumerate(model.weights):
        np.testing.assert_allclose(after[f"a{i}"], weight.numpy(), rtol=1e-5, atol=2e-6, err_msg=weight.path)


@pytest.mark.parametrize("advice", [pytest.param(own, id=name) for name, own in ADVICE.items()])
def test_refusal_gives_its_advice_in_one_line(advice: Advice, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=advice.message) as error:
        export_model(advice.model(), tmp_path / "refused.tflite", **given(advice.settings))
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "advice",
    [pytest.param(own, id=name, marks=[] if name in FAST else pytest.mark.slow) for name, own in ADVICE.items()],
)
def test_advice_of_a_refusal_works(advice: Advice, tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    settings = given({**advice.settings, **advice.changed})
    model = (advice.advised or advice.model)()
    path = export_model(model, tmp_path / "m.tflite", **settings)
    train_like_keras(model, path, settings)
