"""Several inputs and outputs: a siamese network, a recommender, two heads, and an encoder with a decoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from keras import layers
from numpy.typing import NDArray

from odt_sim import Device
from odt_sim.export import export_model
from odt_sim.model.trainable import TrainableModel

BATCH, STEPS, RATE = 6, 4, np.float32(0.1)
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Several:
    """A model with its data by the names in signatures, and as Keras takes them.

    Attributes:
        build: Returns the model.
        rows: Returns x and y of a number of rows, by the names of `train`.
        fitted: Returns x and y for Keras from those.
        settings: Arguments of `export_model`.
        compiled: Arguments of `compile` that differ.
    """

    build: Callable[[], Any]
    rows: Callable[[np.random.Generator, int], Arrays]
    fitted: Callable[[Mapping[str, Any]], tuple[Any, Any]]
    settings: dict[str, Any]
    compiled: dict[str, Any] = field(default_factory=dict)


def siamese() -> Any:
    """Return the distance of two pictures behind a shared tower with batch statistics."""
    first, second = layers.Input((4,), name="first"), layers.Input((4,), name="second")
    parts = [layers.Dense(5, name="tower"), layers.BatchNormalization(name="norm"), layers.Dropout(0.2, name="drop")]
    tower = keras.Sequential([layers.Input((4,)), *parts], name="towers")
    near = layers.Dot(-1, name="product")([tower(first), tower(second)])
    return keras.Model([first, second], layers.Dense(1, name="same", activation="sigmoid")(near))


def recommender() -> Any:
    """Return a rating by two ids, given in a mapping, beside numbers (wide and deep)."""
    user, item = (layers.Input((), dtype="int32", name=name) for name in ("user id", "item"))
    wide = layers.Input((3,), name="wide")
    vectors = [layers.Embedding(7, 4, name=f"of_{name}")(x) for name, x in (("user", user), ("item", item))]
    deep = layers.Dense(5, activation="relu")(layers.Concatenate()([*vectors, wide]))
    rating = layers.Dense(1, name="rating")(layers.Concatenate()([deep, wide]))
    return keras.Model({"user id": user, "item": item, "wide": wide}, rating)


def heads() -> Any:
    """Return a class and two numbers from one body."""
    x = layers.Input((4,), name="x")
    h = layers.Dense(6, activation="tanh", name="body", kernel_regularizer="l2")(x)
    return keras.Model(x, {"kind": layers.Dense(3, name="kind_head")(h), "size": layers.Dense(2, name="size_head")(h)})


def translator() -> Any:
    """Return the words of a decoder and the encoder's state from source and target words, as lists."""
    source, words = (layers.Input((4,), dtype="int32", name=name) for name in ("source", "words"))
    state = layers.GRU(5, name="encoder")(layers.Embedding(6, 3, name="of_source")(source))
    h = layers.GRU(5, return_sequences=True, name="decoder")(
        layers.Embedding(6, 3, name="of_words")(words), initial_state=state
    )
    return keras.Model([source, words], [layers.Dense(6, name="next")(h), layers.Dense(1, name="length")(state)])


def of_booleans() -> Any:
    """Return a class by numbers, of which a boolean says whether they are known."""
    x, known = layers.Input((4,), name="x"), layers.Input((4,), dtype="bool", name="known")
    given = keras.ops.where(known, x, 0.0)
    return keras.Model([x, known], layers.Dense(3)(given))


def of_pairs(random: np.random.Generator, rows: int) -> Arrays:
    normal = {f"x_{name}": random.normal(size=(rows, 4)).astype(np.float32) for name in ("first", "second")}
    return {**normal, "y": random.integers(0, 2, (rows, 1)).astype(np.float32)}


def of_ratings(random: np.random.Generator, rows: int) -> Arrays:
    ids = {f"x_{name}": random.integers(0, 7, rows).astype(np.int32) for name in ("user_id", "item")}
    wide = random.normal(size=(rows, 3)).astype(np.float32)
    return {**ids, "x_wide": wide, "y": random.normal(size=(rows, 1)).astype(np.float32)}


def of_heads(random: np.random.Generator, rows: int) -> Arrays:
    x = random.normal(size=(rows, 4)).astype(np.float32)
    size = random.normal(size=(rows, 2)).astype(np.float32)
    return {"x": x, "y_kind": random.integers(0, 3, rows).astype(np.int32), "y_size": size}


def of_words(random: np.random.Generator, rows: int) -> Arrays:
    source, words, following = (random.integers(0, 6, (rows, 4)).astype(np.int32) for _ in range(3))
    length = random.normal(size=(rows, 1)).astype(np.float32)
    return {"x_source": source, "x_words": words, "y_next": following, "y_length": length}


SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
MODELS = {
    "siamese": Several(
        siamese,
        of_pairs,
        lambda b: ([b["x_first"], b["x_second"]], b["y"]),
        {"loss": "binary_crossentropy", "optimizer": "sgd"},
    ),
    "recommender": Several(
        recommender,
        of_ratings,
        lambda b: ({"user id": b["x_user_id"], "item": b["x_item"], "wide": b["x_wide"]}, b["y"]),
        {"loss": "hinge", "optimizer": "adam"},
    ),
    "heads": Several(
        heads,
        of_heads,
        lambda b: (b["x"], {"kind": b["y_kind"], "size": b["y_size"]}),
        {
            "loss": {"kind": "sparse_categorical_crossentropy", "size": "mse"},
            "loss_weights": {"kind": 1, "size": 0.25},
            "optimizer": "sgd",
            "train_groups": ["head"],
            "gradient_offset": True,
            "head": ["kind_head", "size_head"],
            "embed": True,
        },
        {"loss": {"kind": SPARSE, "size": "mse"}},
    ),
    "translator": Several(
        translator,
        of_words,
        lambda b: ([b["x_source"], b["x_words"]], [b["y_next"], b["y_length"]]),
        {"loss": ["sparse_categorical_crossentropy", keras.losses.Huber(0.5)], "optimizer": "sgd"},
        {"loss": [SPARSE, keras.losses.Huber(0.5)]},
    ),
}
FAST = ("recommender", "heads")


@pytest.mark.parametrize(
    "several",
    [pytest.param(own, id=name, marks=[] if name in FAST else pytest.mark.slow) for name, own in MODELS.items()],
)
def test_several_inputs_and_outputs_train_like_keras(several: Several, tmp_path: Path) -> None:
    keras.utils.set_random_seed(2)
    model = several.build()
    path = export_model(model, tmp_path / "m.tflite", batch_size=BATCH, **several.settings)
    interpreter = Interpreter(str(path), num_threads=1)
    optimizer = keras.optimizers.get(several.settings["optimizer"])
    optimizer.learning_rate = RATE
    losses = {
        "loss_weights": several.settings.get("loss_weights"),
        "loss": several.settings["loss"],
        **several.compiled,
    }
    model.compile(optimizer=optimizer, run_eagerly=True, **losses)
    call = lambda signature, **inputs: interpreter.get_signature_runner(signature)(**inputs)  # noqa: E731
    random, before = np.random.default_rng(1), [v.numpy() for v in model.weights]
    extra = {"mu": np.float32(0)} if several.settings.get("gradient_offset") else {}
    for step in range(STEPS):
        real = BATCH if step else BATCH - 2  # the first batch is padded, as by a device
        batch = several.rows(random, real)
        padded = {key: np.concatenate([value, *[value[:1]] * (BATCH - real)]) for key, value in batch.items()}
        weight = np.array([BATCH / real] * real + [0] * (BATCH - real), np.float32)
        found = call("train", **padded, sample_weight=weight, learning_rate=RATE, **extra)["loss"]
        model.reset_metrics()
        expected = model.train_on_batch(*several.fitted(batch), return_dict=True)["loss"]
        assert float(found) == pytest.approx(float(expected), abs=1e-5)
    after = call("parameters")
    limit = 1e-5 * max(float(np.abs(v - old).max()) for v, old in zip(model.get_weights(), before, strict=True)) + 1e-7
    for i, v in enumerate(model.weights):
        np.testing.assert_allclose(after[f"a{i}"], v.numpy(), rtol=0, atol=limit, err_msg=v.path)
    _evaluates_like_keras(call, model, several, path)
    if several.settings.get("embed"):
        _embeds(call, several)


def _evaluates_like_keras(call: Any, model: Any, several: Several, path: Path) -> None:
    """Compare the mean of `losses` with Keras' evaluation, without regularization."""
    batch = several.rows(np.random.default_rng(5), BATCH)
    outputs = call("infer", **{key: value for key, value in batch.items() if key.startswith("x")})
    manifest = TrainableModel.from_content(path.read_bytes(), where="m").manifest
    if len(manifest.outputs) == 1 and manifest.loss == "binary_crossentropy":
        return
    targets = {key: value for key, value in batch.items() if key.startswith("y")}
    losses = call("loss", **outputs, **targets)
    expected = model.test_on_batch(*several.fitted(batch), return_dict=True)["loss"] - float(sum(model.losses))
    assert losses["losses"].shape == (BATCH,)
    assert float(losses["losses"].mean()) == pytest.approx(float(expected), abs=1e-5)
    weighted = sum(o.loss_weight * losses[f"losses_{o.name}"] for o in manifest.outputs if o.name)
    if len(manifest.outputs) > 1:
        np.testing.assert_allclose(weighted, losses["losses"], atol=1e-5)


def _embeds(call: Any, several: Several) -> None:
    batch = several.rows(np.random.default_rng(6), BATCH)
    found = call("head_infer", **call("embed", x=batch["x"]))
    for name, value in call("infer", x=batch["x"]).items():
        np.testing.assert_allclose(found[name], value, atol=1e-6)


def test_boolean_inputs_take_booleans(tmp_path: Path) -> None:
    model, random = of_booleans(), np.random.default_rng(0)
    x, known = random.normal(size=(5, 4)).astype(np.float32), random.random((5, 4)) < 0.5
    path = export_model(model, tmp_path / "m.tflite", loss="sparse_categorical_crossentropy", optimizer="sgd")
    device = Device(TrainableModel.load(path), ({"x": x, "known": known}, np.arange(5) % 3))
    np.testing.assert_allclose(device.infer({"x": x, "known": known}), model.predict([x, known], verbose=0), atol=1e-6)
    device.train()
