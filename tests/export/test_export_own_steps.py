"""Compiled models and own classes: compiled loss and metrics; own `call` or steps; several inputs and outputs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers, losses, ops
from numpy.typing import NDArray

from odt_sim import Device
from odt_sim.errors import ModelError
from odt_sim.export import export_model
from odt_sim.model.trainable import TrainableModel

BATCH, STEPS = 6, 4
Arrays = dict[str, NDArray[Any]]
EXAMPLE = (np.zeros((2, 4)), np.zeros((2, 4)))


class Network(keras.Model):  # type: ignore[misc]
    """A class with its own `call`, layers of every group and a weight of its own."""

    def __init__(self) -> None:
        super().__init__(name="network")
        self.first = layers.Dense(5, activation="relu", name="first")
        self.norm = layers.BatchNormalization(name="norm")
        self.drop = layers.Dropout(0.3, seed=1)
        self.last = layers.Dense(4, name="last")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.last(self.drop(self.norm(self.first(x)), training=training)) * self.scale


class Pair(keras.Model):  # type: ignore[misc]
    """A class that takes and returns mappings."""

    def __init__(self) -> None:
        super().__init__()
        self.tower, self.near, self.far = layers.Dense(5), layers.Dense(2), layers.Dense(1)

    def call(self, x: Any) -> Any:
        h = self.tower(x["a"]) * self.tower(x["b"])
        return {"near": self.near(h), "far": self.far(h)}


class Distilled(keras.Model):  # type: ignore[misc]
    """A student that also learns from a frozen teacher, by its own `compute_loss`."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = layers.Dense(4, trainable=False)
        self.student = keras.Sequential([layers.Dense(3), layers.Dense(4)])

    def build(self, shape: Any) -> None:
        self.teacher.build(shape)
        self.student.build(shape)

    def call(self, x: Any) -> Any:
        return self.student(x)

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        own = super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight)
        soft = ops.softmax(self.teacher(x) / 2.0), ops.softmax(y_pred / 2.0)
        return own + 4.0 * losses.KLDivergence()(*soft, sample_weight=sample_weight)


class Halved(Network):
    """A class with its own `train_step`, which halves the gradients and keeps a metric of the loss."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True), sample_weight=sample_weight)
        gradients = [0.5 * gradient for gradient in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self._loss_tracker.update_state(loss)
        return {"loss": self._loss_tracker.result()}


class OfEach(Network):
    """A class that returns a loss for each example, which Keras sums."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        each = ops.mean(ops.square(y - y_pred), -1)
        return each if sample_weight is None else each * sample_weight


class Contrasted(Network):
    """A class whose loss is over all pairs of a batch, and that takes no targets."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        pairs = ops.matmul(y_pred, ops.transpose(y_pred))
        number = ops.arange(ops.shape(pairs)[0])
        return ops.mean(losses.sparse_categorical_crossentropy(number, pairs, from_logits=True))


class Autoencoder(keras.Model):  # type: ignore[misc]
    """A variational autoencoder, which takes x alone and computes its loss in its step."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = layers.Dense(4, name="encoder"), layers.Dense(4, name="decoder")
        self.seeds, self.total = keras.random.SeedGenerator(5), keras.metrics.Mean(name="loss")

    def call(self, x: Any) -> Any:
        return self.decoder(self.encoder(x)[:, :2])

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            mean, logarithm = ops.split(self.encoder(data), 2, axis=1)
            drawn = mean + ops.exp(0.5 * logarithm) * keras.random.normal(ops.shape(mean), seed=self.seeds)
            divergence = ops.square(mean) + ops.exp(logarithm) - logarithm
            loss = ops.mean(ops.square(data - self.decoder(drawn))) + ops.mean(divergence)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights, strict=True)
        )
        self.total.update_state(loss)
        return {"loss": self.total.result()}


class Siamese(keras.Model):  # type: ignore[misc]
    """A class that compares two inputs, without a compiled loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = layers.Dense(3, name="tower")

    def call(self, x: Any) -> Any:
        return ops.sum(ops.square(self.tower(x["a"]) - self.tower(x["b"])), -1)

    def train_step(self, data: Any) -> Any:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            distance = self(x, training=True)
            each = y * distance + (1.0 - y) * ops.relu(1.0 - distance)
            loss = ops.mean(each if sample_weight is None else each * sample_weight)
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class Compared(layers.Layer):  # type: ignore[misc]
    """A layer that takes the labels and adds the loss of each example, as in Keras' example of OCR."""

    def call(self, label: Any, output: Any) -> Any:
        self.add_loss(ops.mean(ops.square(label - output), -1))
        return output


def with_labels() -> Any:
    image, label = layers.Input((4,), name="image"), layers.Input((4,), name="label")
    return keras.Model([image, label], Compared()(label, layers.Dense(4, kernel_regularizer="l2", name="last")(image)))


class Mixed(Network):
    """A class that adds noise to the examples by a share that it draws."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(5)

    def train_step(self, data: Any) -> Any:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        share = keras.random.uniform((BATCH, 1), 0.5, 1.0, seed=self.seeds)
        other = ops.flip(x, 0), ops.flip(y, 0)
        mixed = [share * a + (1.0 - share) * b for a, b in zip((x, y), other, strict=True)]
        return super().train_step((*mixed, sample_weight))


def sequential() -> Any:
    parts = [layers.Dense(5, activation="relu"), layers.Dense(3, activation="softmax")]
    return keras.Sequential([layers.Input((4,)), *parts])


def two_heads() -> Any:
    x = layers.Input((4,))
    return keras.Model(x, [layers.Dense(2, name="u")(x), layers.Dense(1, name="v")(x)])


def numbers(random: np.random.Generator, rows: int, width: int = 4) -> NDArray[Any]:
    return random.normal(size=(rows, width)).astype(np.float32)


def classes(random: np.random.Generator, rows: int) -> Arrays:
    return {"x": numbers(random, rows), "y": random.integers(0, 3, rows).astype(np.int32)}


def targets(random: np.random.Generator, rows: int) -> Arrays:
    return {"x": numbers(random, rows), "y": numbers(random, rows)}


def of_heads(random: np.random.Generator, rows: int) -> Arrays:
    return {"x": numbers(random, rows), "y_u": numbers(random, rows, 2), "y_v": numbers(random, rows, 1)}


def of_pair(random: np.random.Generator, rows: int) -> Arrays:
    inputs = {"x_a": numbers(random, rows), "x_b": numbers(random, rows)}
    return {**inputs, "y_near": numbers(random, rows, 2), "y_far": numbers(random, rows, 1)}


def examples(random: np.random.Generator, rows: int) -> Arrays:
    return {"x": numbers(random, rows), "y": np.zeros(rows, np.int32)}


def with_label(random: np.random.Generator, rows: int) -> Arrays:
    return {"x_image": numbers(random, rows), "x_label": numbers(random, rows), "y": np.zeros(rows, np.int32)}


def of_two(random: np.random.Generator, rows: int) -> Arrays:
    pair = {"x_a": numbers(random, rows), "x_b": numbers(random, rows)}
    return {**pair, "y": random.integers(0, 2, rows).astype(np.float32)}


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


def of_one_body() -> Any:
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


def of_kinds(random: np.random.Generator, rows: int) -> Arrays:
    x = random.normal(size=(rows, 4)).astype(np.float32)
    size = random.normal(size=(rows, 2)).astype(np.float32)
    return {"x": x, "y_kind": random.integers(0, 3, rows).astype(np.int32), "y_size": size}


def of_words(random: np.random.Generator, rows: int) -> Arrays:
    source, words, following = (random.integers(0, 6, (rows, 4)).astype(np.int32) for _ in range(3))
    length = random.normal(size=(rows, 1)).astype(np.float32)
    return {"x_source": source, "x_words": words, "y_next": following, "y_length": length}


@dataclass(frozen=True)
class Own:
    """A compiled model and its data.

    Attributes:
        build: Returns the model.
        compiled: Arguments of `compile`.
        rows: Returns a batch by the names in the signature `train`.
        fitted: Returns x and y for Keras.
        example: The example of `export_model`.
        outputs: What the manifest says of the outputs: name, loss, metrics and factor.
        padded: Whether a batch of fewer rows is trained, too.
        batch_size: The `batch_size` of `export_model`.
        options: Further arguments of `export_model`.
    """

    build: Callable[[], Any]
    compiled: dict[str, Any]
    rows: Callable[[np.random.Generator, int], Arrays] = targets
    fitted: Callable[[Arrays], Any] = lambda batch: (batch["x"], batch["y"])
    example: Any = EXAMPLE
    outputs: list[Any] = field(default_factory=lambda: [("", "mean_squared_error", (), 1.0)])
    padded: bool = True
    batch_size: int | None = BATCH
    options: dict[str, Any] = field(default_factory=dict)


SPARSE = losses.SparseCategoricalCrossentropy(from_logits=True)
MODELS = {
    "compiled with a loss by name": Own(
        sequential,
        {
            "optimizer": "adam",
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)],
        },
        classes,
        example=None,
        outputs=[("", "sparse_categorical_crossentropy", ("accuracy", "top_2"), 1.0)],
    ),
    "compiled with losses, factors and metrics by output": Own(
        two_heads,
        {
            "optimizer": keras.optimizers.SGD(0.05, momentum=0.9),
            "loss": {"u": "mse", "v": "mae"},
            "loss_weights": {"u": 0.5, "v": 2.0},
            "metrics": {"v": ["mae"]},
        },
        of_heads,
        lambda batch: (batch["x"], [batch["y_u"], batch["y_v"]]),
        example=None,
        outputs=[("u", "mean_squared_error", (), 0.5), ("v", "mean_absolute_error", ("mae",), 2.0)],
    ),
    "own call": Own(Network, {"optimizer": "sgd", "loss": "mse"}, example=EXAMPLE[0]),
    "own call with mappings": Own(
        Pair,
        {"optimizer": "sgd", "loss": "log_cosh"},
        of_pair,
        lambda batch: (
            {"a": batch["x_a"], "b": batch["x_b"]},
            {"near": batch["y_near"], "far": batch["y_far"]},
        ),
        example={"a": EXAMPLE[0], "b": keras.Input((4,))},
        outputs=[("far", "log_cosh", (), 1.0), ("near", "log_cosh", (), 1.0)],
    ),
    "own compute_loss": Own(
        Distilled,
        {"optimizer": "adam", "loss": losses.SparseCategoricalCrossentropy(from_logits=True)},
        classes,
        outputs=[("", "sparse_categorical_crossentropy", (), 1.0)],
    ),
    "own compute_loss of each example": Own(OfEach, {"optimizer": "sgd"}, outputs=[("", None, (), 1.0)]),
    "own compute_loss of a batch": Own(
        Contrasted,
        {"optimizer": "sgd"},
        examples,
        lambda batch: (batch["x"],),
        example=EXAMPLE[0],
        outputs=[("", None, (), 1.0)],
        padded=False,
        batch_size=None,
    ),
    "own train_step of x": Own(
        Autoencoder,
        {"optimizer": "adam"},
        examples,
        lambda batch: (batch["x"],),
        example=EXAMPLE[:1],
        outputs=[("", "none", (), 1.0)],
        padded=False,
        batch_size=None,
    ),
    "own train_step without a loss": Own(
        Siamese,
        {"optimizer": "sgd"},
        of_two,
        lambda batch: ({"a": batch["x_a"], "b": batch["x_b"]}, batch["y"]),
        example=({"a": EXAMPLE[0], "b": EXAMPLE[0]}, np.zeros(2)),
        outputs=[("", "none", (), 1.0)],
    ),
    "losses of layers": Own(
        with_labels,
        {"optimizer": "sgd"},
        with_label,
        lambda batch: ([batch["x_image"], batch["x_label"]],),
        example=([EXAMPLE[0], EXAMPLE[0]],),
        outputs=[("", "none", (), 1.0)],
    ),
    "own train_step": Own(Halved, {"optimizer": "sgd", "loss": "mse"}),
    "mixup": Own(Mixed, {"optimizer": "sgd", "loss": "mse"}, padded=False),
    "siamese": Own(
        siamese,
        {"optimizer": "sgd", "loss": "binary_crossentropy"},
        of_pairs,
        lambda b: ([b["x_first"], b["x_second"]], b["y"]),
        example=None,
        outputs=[("", "binary_crossentropy", (), 1.0)],
    ),
    "recommender": Own(
        recommender,
        {"optimizer": "adam", "loss": "hinge"},
        of_ratings,
        lambda b: ({"user id": b["x_user_id"], "item": b["x_item"], "wide": b["x_wide"]}, b["y"]),
        example=None,
        outputs=[("", "hinge", (), 1.0)],
    ),
    "heads on one body": Own(
        of_one_body,
        {"optimizer": "sgd", "loss": {"kind": SPARSE, "size": "mse"}, "loss_weights": {"kind": 1, "size": 0.25}},
        of_kinds,
        lambda b: (b["x"], {"kind": b["y_kind"], "size": b["y_size"]}),
        example=None,
        outputs=[("kind", "sparse_categorical_crossentropy", (), 1.0), ("size", "mean_squared_error", (), 0.25)],
        options={"train_groups": ["head"], "gradient_offset": True, "head": ["kind_head", "size_head"], "embed": True},
    ),
    "encoder and decoder": Own(
        translator,
        {"optimizer": "sgd", "loss": [SPARSE, losses.Huber(0.5)]},
        of_words,
        lambda b: ([b["x_source"], b["x_words"]], [b["y_next"], b["y_length"]]),
        example=None,
        outputs=[("next", "sparse_categorical_crossentropy", (), 1.0), ("length", "huber", (), 1.0)],
    ),
}
ALONE = "own train_step without a loss"
FAST = ("own compute_loss", "own train_step", "heads on one body")


@pytest.mark.parametrize(
    "own", [pytest.param(own, id=name, marks=[] if name in FAST else pytest.mark.slow) for name, own in MODELS.items()]
)
def test_compiled_model_trains_like_keras(own: Own, tmp_path: Path) -> None:
    keras.utils.set_random_seed(2)
    model = own.build()
    model.compile(**own.compiled, run_eagerly=True)
    path = export_model(model, tmp_path / "m.tflite", batch_size=own.batch_size, example=own.example, **own.options)
    manifest = TrainableModel.from_content(path.read_bytes(), where="m").manifest
    assert [(o.name, o.loss, o.metrics, o.loss_weight) for o in manifest.outputs] == own.outputs
    interpreter = Interpreter(str(path), num_threads=1)
    call = lambda signature, **inputs: interpreter.get_signature_runner(signature)(**inputs)  # noqa: E731
    random, before, rate = np.random.default_rng(1), model.get_weights(), model.optimizer.learning_rate.numpy()
    offset = {"mu": np.float32(0)} if own.options.get("gradient_offset") else {}
    for step in range(STEPS):
        real = BATCH - 2 if own.padded and step == 1 else BATCH
        batch = own.rows(random, real)
        padded = {key: np.concatenate([value, *[value[:1]] * (BATCH - real)]) for key, value in batch.items()}
        weight = np.array([BATCH / real] * real + [0] * (BATCH - real), np.float32)
        found = call("train", **padded, sample_weight=weight, learning_rate=rate, **offset)["loss"]
        model.reset_metrics()
        fitted = own.fitted(batch)
        if len(fitted) > 1:
            expected = model.train_on_batch(*fitted, return_dict=True)["loss"]
        else:  # a step gets x alone only from fit
            expected = model.fit(*fitted, shuffle=False, verbose=0).history["loss"][0]
        assert float(found) == pytest.approx(float(expected), abs=1e-5)
    after = call("parameters")
    limit = 1e-5 * max(float(np.abs(v - old).max()) for v, old in zip(model.get_weights(), before, strict=True)) + 1e-7
    for i, v in enumerate(model.weights):
        np.testing.assert_allclose(after[f"a{i}"], v.numpy(), rtol=0, atol=limit, err_msg=v.path)
    batch = own.rows(random, BATCH)
    outputs = call("infer", **{key: value for key, value in batch.items() if key.startswith("x")})
    if "loss" in interpreter.get_signature_list():
        taken = interpreter.get_signature_runner("loss").get_input_details()
        given = {key: value for key, value in {**batch, **outputs}.items() if key in taken}
        model.reset_metrics()
        expected = model.evaluate(*own.fitted(batch), verbose=0, return_dict=True)["loss"] - float(sum(model.losses))
        found = call("loss", **given)
        assert float(found["losses"].mean()) == pytest.approx(float(expected), abs=1e-5)
        if len(own.outputs) > 1:
            weighted = sum(factor * found[f"losses_{name}"] for name, *_, factor in own.outputs)
            np.testing.assert_allclose(weighted, found["losses"], atol=1e-5)
    if own.options.get("embed"):
        embedded = call("head_infer", **call("embed", x=batch["x"]))
        for name, value in outputs.items():
            np.testing.assert_allclose(embedded[name], value, atol=1e-6)


def test_loss_of_a_step_alone_is_no_metric(tmp_path: Path) -> None:
    path = export_model(Siamese(), tmp_path / "m.tflite", optimizer="sgd", example=MODELS[ALONE].example, batch_size=2)
    x = {"a": np.zeros((3, 4), np.float32), "b": np.ones((3, 4), np.float32)}
    device = Device(TrainableModel.load(path), (x, np.ones(3, np.float32)))
    assert device.evaluate("train") == {"examples": 3}
    with pytest.raises(ModelError, match=r"^the model computes its loss only in training steps; export it with a loss"):
        device.loss("train")


@pytest.mark.slow
def test_groups_of_a_class_are_those_of_its_layers(tmp_path: Path) -> None:
    model = Network()
    path = export_model(
        model, tmp_path / "m.tflite", loss="mse", optimizer="sgd", example=EXAMPLE, batch_size=2, train_groups=["head"]
    )
    found = {p.name: p.group for p in TrainableModel.load(path).parameters}
    assert found["network/scale"] == found["network/first/kernel"] == "body"
    assert (found["network/norm/gamma"], found["network/last/kernel"]) == ("norm", "head")
    interpreter = Interpreter(str(path), num_threads=1)
    before = interpreter.get_signature_runner("parameters")()
    ones = {"x": np.ones((2, 4), np.float32), "y": np.ones((2, 4), np.float32), "sample_weight": np.ones(2, np.float32)}
    interpreter.get_signature_runner("train_head")(**ones, learning_rate=np.float32(0.1))
    after = interpreter.get_signature_runner("parameters")()
    changed = [name for i, name in enumerate(found) if not np.array_equal(before[f"a{i}"], after[f"a{i}"])]
    assert changed == ["network/last/kernel", "network/last/bias"]
    assert [v.trainable for v in model.variables[:3]] == [True] * 3


class Penalized(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        kernel = self.dense.kernel
        penalty = ops.sum(kernel * kernel) + ops.sum(kernel**2)  # crashed LiteRT as a product of a variable with itself
        return super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight) + 0.01 * penalty


def test_own_penalty_of_weights_loads(tmp_path: Path) -> None:
    path = export_model(
        Penalized(), tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=BATCH, example=EXAMPLE
    )
    assert "loss" in TrainableModel.load(path).signatures


def test_boolean_inputs_take_booleans(tmp_path: Path) -> None:
    model, random = of_booleans(), np.random.default_rng(0)
    x, known = random.normal(size=(5, 4)).astype(np.float32), random.random((5, 4)) < 0.5
    path = export_model(model, tmp_path / "m.tflite", loss="sparse_categorical_crossentropy", optimizer="sgd")
    device = Device(TrainableModel.load(path), ({"x": x, "known": known}, np.arange(5) % 3))
    np.testing.assert_allclose(device.infer({"x": x, "known": known}), model.predict([x, known], verbose=0), atol=1e-6)
    device.train()
