"""Further training steps: of single groups, of the head on embeddings, with an offset, with class weights."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.export import export_model
from odt_sim.model.trainable import TrainableModel

BATCH, STEPS, RATE = 6, 5, np.float32(0.1)
ONES = np.ones(BATCH, np.float32)
GROUPS = ("head", "norm", "body", "body_norm")


def network() -> Any:
    """Return a body, normalizations and a head behind a Dropout, always with the same weights."""
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            layers.Input((5, 4, 2)),
            layers.Conv2D(4, 3, name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(6, activation="tanh", name="hidden"),
            layers.Dropout(0.3, name="drop"),
            layers.Dense(3, name="head"),
        ]
    )


def optimizer() -> Any:
    return keras.optimizers.SGD(float(RATE), momentum=0.9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file with every option of `export_model`."""
    return export_model(
        network(),
        tmp_path_factory.mktemp("steps") / "model.tflite",
        loss="sparse_categorical_crossentropy",
        optimizer=optimizer(),
        batch_size=BATCH,
        class_weight={0: 3.0, 2: 0.5},
        train_groups=GROUPS,
        embed=True,
        gradient_offset=True,
    )


@pytest.fixture(scope="module")
def model(path: Path) -> TrainableModel:
    return TrainableModel.load(path)


@pytest.fixture
def call(path: Path) -> Callable[..., dict[str, NDArray[Any]]]:
    interpreter = Interpreter(str(path), num_threads=1)
    return lambda signature, **inputs: interpreter.get_signature_runner(signature)(**inputs)


def batches() -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        x = random.normal(size=(BATCH, 5, 4, 2)).astype(np.float32)
        y = random.integers(0, 3, BATCH).astype(np.int32)
        yield {"x": x, "y": y, "sample_weight": ONES, "learning_rate": RATE}


def keras_steps(
    trained: tuple[str, ...], offsets: list[NDArray[Any]] | None = None, mu: float = 0.0, **settings: Any
) -> list[NDArray[Any]]:
    """Return the weights after steps in Keras that train some groups only."""
    twin, own = network(), optimizer() if "optimizer" not in settings else settings["optimizer"]
    own.build(twin.trainable_variables)
    every = list(twin.trainable_variables)
    groups = {"conv": "body", "hidden": "body", "norm": "norm", "head": "head"}
    for layer in twin.layers:
        layer.trainable = groups.get(layer.name, "none") in trained
    twin.get_layer("drop").trainable = True
    factors = np.array([3.0, 1.0, 0.5], np.float32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for batch in batches():
        with tf.GradientTape() as tape:
            value = loss(batch["y"], twin(batch["x"], training=True), sample_weight=factors[batch["y"]])
        variables = twin.trainable_variables
        gradients = tape.gradient(value, variables)
        if offsets is not None:
            places = [next(i for i, v in enumerate(every) if v is own_variable) for own_variable in variables]
            pairs = zip(gradients, variables, places, strict=True)
            gradients = [g + mu * v.value + offsets[i] for g, v, i in pairs]
        own.apply_gradients(zip(gradients, variables, strict=True))
    return [v.numpy() for v in twin.weights]


def agree(call: Any, expected: list[NDArray[Any]]) -> None:
    before, found = [v.numpy() for v in network().weights], call("parameters")
    limit = 1e-5 * max(float(np.abs(new - old).max()) for new, old in zip(expected, before, strict=True)) + 1e-7
    for i, value in enumerate(expected):
        np.testing.assert_allclose(found[f"a{i}"], value, rtol=0, atol=limit, err_msg=f"a{i}")


def test_step_applies_class_weights(call: Any) -> None:
    for batch in batches():
        call("train", **batch, mu=np.float32(0))
    agree(call, keras_steps(("body", "norm", "head")))


@pytest.mark.parametrize("group", GROUPS)
def test_group_trains_like_keras_with_other_layers_frozen(group: str, call: Any, model: Any) -> None:
    for batch in batches():
        call(f"train_{group}", **batch, mu=np.float32(0))
    expected = keras_steps(tuple(group.split("_")))
    agree(call, expected)
    for parameter, value, old in zip(model.parameters, expected, network().weights, strict=True):
        assert np.array_equal(value, old.numpy()) != (parameter.group in group.split("_")), parameter.name


def test_gradients_of_other_groups_are_not_computed(model: TrainableModel) -> None:
    ops = {name: sum(counts.values()) for name, counts in model.operators.items()}
    assert ops["head_train"] < ops["train_head"] < ops["train_body"] < ops["train"]


def test_head_trains_on_embeddings_as_on_examples(call: Any, path: Path) -> None:
    other = Interpreter(str(path), num_threads=1)
    for batch in batches():
        embedding = call("embed", x=batch["x"])["embedding"]
        rest = {key: value for key, value in batch.items() if key != "x"}
        found = call("head_train", embedding=embedding, **rest, mu=np.float32(0))["loss"]
        expected = other.get_signature_runner("train_head")(**batch, mu=np.float32(0))["loss"]
        assert float(found) == pytest.approx(float(expected), abs=1e-6)
    for name, value in other.get_signature_runner("parameters")().items():
        np.testing.assert_allclose(call("parameters")[name], value, atol=1e-6)
    x = next(batches())["x"]
    found, expected = call("head_infer", **call("embed", x=x)), call("infer", x=x)
    np.testing.assert_allclose(found["logits"], expected["logits"], atol=1e-6)


@pytest.mark.parametrize("group", ["body_norm_head", "head"])
def test_step_adds_the_gradient_offset(group: str, call: Any, model: TrainableModel) -> None:
    random, mu = np.random.default_rng(5), 0.3
    shapes = [p.shape for p in model.parameters if p.role == "trainable"]
    offsets = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    call("set_gradient_offset", **{f"b{i}": value for i, value in enumerate(offsets)})
    for batch in batches():
        call("train_head" if group == "head" else "train", **batch, mu=np.float32(mu))
    agree(call, keras_steps(tuple(group.split("_")), offsets, mu))


@pytest.mark.slow
def test_frozen_backbone_keeps_its_weights(tmp_path: Path) -> None:
    twin = network()
    for layer in twin.layers[:-2]:
        layer.trainable = False
    trainable = [layer.trainable for layer in twin.layers]
    settings: dict[str, Any] = {"loss": "sparse_categorical_crossentropy", "optimizer": "adam", "batch_size": BATCH}
    path = export_model(twin, tmp_path / "m.tflite", train_groups=["head"], **settings)
    assert [layer.trainable for layer in twin.layers] == trainable
    model, interpreter = TrainableModel.load(path), Interpreter(str(path), num_threads=1)
    roles = {p.name.partition("/")[2]: p.role for p in model.parameters}
    assert [name for name, role in roles.items() if role == "trainable"] == ["head/kernel", "head/bias"]
    assert set(roles.values()) == {"trainable", "frozen"}
    assert [slot.shape for slot in model.slots] == [(), (6, 3), (6, 3), (3,), (3,), (2,)]
    for batch in batches():
        interpreter.get_signature_runner("train")(**batch)
    after = interpreter.get_signature_runner("parameters")()
    for i, (p, before) in enumerate(zip(model.parameters, twin.weights, strict=True)):
        assert np.array_equal(after[f"a{i}"], before.numpy()) == (p.role == "frozen"), p.name


class Scaled(keras.Model):  # type: ignore[misc]
    """A user's model class with a weight of its own."""

    def __init__(self) -> None:
        super().__init__(name="scaled")
        self.dense = layers.Dense(3, name="dense")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x: Any) -> Any:
        return self.dense(x) * self.scale


@pytest.mark.slow
def test_wrapped_model_class_is_one_layer(tmp_path: Path) -> None:
    x = keras.Input((4,))
    network = keras.Model(x, layers.Dense(2, name="head")(Scaled()(x)))
    path = export_model(
        network, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2, train_groups=["head"]
    )
    said = [(p.name, p.role, p.group) for p in TrainableModel.load(path).parameters]
    assert said == [
        ("scaled/scale", "trainable", "body"),
        ("scaled/dense/kernel", "trainable", "body"),
        ("scaled/dense/bias", "trainable", "body"),
        ("head/kernel", "trainable", "head"),
        ("head/bias", "trainable", "head"),
    ]
    interpreter = Interpreter(str(path), num_threads=1)
    before = interpreter.get_signature_runner("parameters")()
    rows = {"x": np.ones((2, 4), np.float32), "y": np.ones((2, 2), np.float32), "sample_weight": np.ones(2, np.float32)}
    interpreter.get_signature_runner("train_head")(**rows, learning_rate=RATE)
    after = interpreter.get_signature_runner("parameters")()
    assert [np.array_equal(after[f"a{i}"], before[f"a{i}"]) for i in range(5)] == [True] * 3 + [False] * 2


def nested() -> Any:
    inner = keras.Sequential([layers.Input((4,)), layers.Dense(3), layers.Dense(3, name="head")])
    return keras.Sequential([layers.Input((4,)), inner])


def body_with(random: Any) -> Any:
    return keras.Sequential([layers.Input((4,)), layers.Dense(3), random, layers.ReLU(), layers.Dense(3)])


def random_body() -> Any:
    return body_with(layers.Dropout(0.1, name="drop"))


def noisy_body() -> Any:
    return body_with(layers.GaussianNoise(0.1, name="noise"))


def behind() -> Any:
    return keras.Sequential([layers.Input((4,)), layers.Dense(3, name="head"), layers.BatchNormalization(name="after")])


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (nested, {"embed": True}, r"embed: the head of model .* is inside a nested model"),
    (
        random_body,
        {"embed": True},
        r"embed: the body draws random numbers, also .*, in drop; .* layer\.rate = 0 of each",
    ),
    (
        noisy_body,
        {"embed": True},
        r"also with training=False in its call, in noise; .*, so set layer\.stddev = 0 of each",
    ),
    (behind, {"embed": True}, r"embed: layer 'after' follows the head"),
    (behind, {"train_groups": ["tail"]}, r"train_groups: expected body, head, norm.* found 'tail'"),
    (
        behind,
        {"class_weight": {3: 2.0}, "loss": "categorical_crossentropy"},
        r"class_weight: expected classes 0\.\.2 and factors of at least 0, found 3: 2\.0",
    ),
]


@pytest.mark.parametrize(("build", "options", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_unsuitable_head_group_or_class_weight_is_refused(
    build: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        export_model(build(), tmp_path / "m.tflite", **{"loss": "mse", "optimizer": "sgd", **options})
    assert not list(tmp_path.iterdir())


CLASSES: list[tuple[Any, int, Any]] = [
    (keras.losses.SparseCategoricalCrossentropy, 3, np.array([0, 2, 1, 0], np.int32)),
    (keras.losses.CategoricalCrossentropy, 3, np.eye(3, dtype=np.float32)[[0, 2, 1, 0]]),
    (keras.losses.BinaryCrossentropy, 1, np.array([[0], [1], [1], [0]], np.float32)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "outputs", "y"), CLASSES)
def test_class_weights_match_keras(kind: Any, outputs: int, y: Any, tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    twin = keras.Sequential([layers.Input((4,)), layers.Dense(outputs)])
    loss, weights = kind(from_logits=True), {np.int64(0): np.float32(2.0), 1: 0.25}
    path = export_model(twin, tmp_path / "m.tflite", loss=loss, optimizer="sgd", batch_size=4, class_weight=weights)
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    train = Interpreter(str(path), num_threads=1).get_signature_runner("train")
    found = train(x=x, y=y, sample_weight=np.ones(4, np.float32), learning_rate=RATE)["loss"]
    twin.compile(loss=loss, jit_compile=False)
    assert float(found) == pytest.approx(float(twin.train_on_batch(x, y, class_weight=weights)), rel=1e-5)


def test_constrained_step_is_not_plain_sgd(tmp_path: Path) -> None:
    """The host cannot add an offset; the gradient of the mean squared error pulls every weight below zero."""
    dense = layers.Dense(2, kernel_constraint="non_neg", kernel_initializer="ones")
    network = keras.Sequential([layers.Input((3,)), dense])
    path = export_model(network, tmp_path / "model.tflite", loss="mse", optimizer="sgd", batch_size=1)
    interpreter = Interpreter(str(path), num_threads=1)
    x, y, one = np.ones((1, 3), np.float32), np.full((1, 2), -9, np.float32), np.ones(1, np.float32)
    interpreter.get_signature_runner("train")(x=x, y=y, sample_weight=one, learning_rate=RATE)
    kernel, bias = (interpreter.get_signature_runner("parameters")()[name] for name in ("a0", "a1"))
    assert (kernel == 0).all()
    assert (bias < 0).all()
    capabilities = TrainableModel.load(path).capabilities
    assert not capabilities & {"plain_sgd", "gradient_offset"}
