"""A padded step is that of its real rows, also if BatchNormalization sees no batch, or one merged with other axes."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

RATE = np.float32(0.01)

BATCH = 8  # of `twins`


class Table(layers.Layer):  # type: ignore[misc]
    """Products with the rows of a table of weights, each normalized and regularized over its rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.norm = rows, layers.BatchNormalization(momentum=0.5)
        self.dense = layers.Dense(4, activity_regularizer=keras.regularizers.L2(0.1))

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(self.rows, 4), name="table")
        self.norm.build((self.rows, 4))
        self.dense.build((self.rows, 4))

    def call(self, x: Any, training: bool = False) -> Any:
        return ops.matmul(x, ops.transpose(self.dense(self.norm(self.table, training=training))))


class Graph(layers.Layer):  # type: ignore[misc]
    """A graph convolution of `[batch, nodes, features]` that adds a learned embedding of the nodes."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.adjacency = np.random.default_rng(0).uniform(size=(nodes, nodes)).astype(np.float32)
        self.of_nodes, self.of_examples = layers.BatchNormalization(), layers.BatchNormalization()

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(4, 3), name="kernel")
        self.nodes = self.add_weight(shape=(shape[1], 3), name="nodes")
        self.of_nodes.build((shape[1], 3))
        self.of_examples.build((None, shape[1], 3))

    def call(self, x: Any, training: bool = False) -> Any:
        nodes = self.of_nodes(ops.matmul(self.adjacency, self.nodes), training=training)
        return self.of_examples(ops.matmul(self.adjacency, ops.matmul(x, self.kernel)) + nodes, training=training)


class Frames(layers.Layer):  # type: ignore[misc]
    """Frames of all examples as the rows of one matrix, normalized and regularized."""

    def __init__(self, *, times_first: bool) -> None:
        super().__init__()
        self.times_first, self.norm = times_first, layers.BatchNormalization(momentum=0.5)
        self.dense = layers.Dense(4, activity_regularizer=keras.regularizers.L2(0.1))

    def build(self, shape: Any) -> None:
        self.norm.build((None, 4))
        self.dense.build((None, 4))

    def call(self, x: Any, training: bool = False) -> Any:
        x = ops.transpose(x, (1, 0, 2)) if self.times_first else x
        rows = self.norm(self.dense(ops.reshape(x, (-1, 4))), training=training)
        frames = ops.reshape(rows, ops.shape(x))
        return ops.transpose(frames, (1, 0, 2)) if self.times_first else frames


class TimesFirst(layers.Layer):  # type: ignore[misc]
    """Normalization of `[frames, batch, features]`."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = layers.BatchNormalization(momentum=0.5)

    def build(self, shape: Any) -> None:
        self.norm.build((shape[1], None, shape[2]))

    def call(self, x: Any, training: bool = False) -> Any:
        return ops.transpose(self.norm(ops.transpose(x, (1, 0, 2)), training=training), (1, 0, 2))


class Penalized(layers.Layer):  # type: ignore[misc]
    """A layer with a loss of its inputs."""

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * ops.mean(x**2))
        return x


def largest(x: Any) -> Any:
    return ops.sum(ops.max(ops.abs(x), -1))


def sequential(shape: tuple[int, ...], *body: Any) -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential([layers.Input(shape), layers.Dense(4), *body, layers.Flatten(), layers.Dense(3)])


def frames() -> Any:
    return sequential((5, 4), Frames(times_first=True), layers.ReLU(), Frames(times_first=False))


def masked() -> Any:
    body = [layers.Reshape((18, 2)), layers.ReLU(), layers.Masking(), layers.BatchNormalization(momentum=0.8)]
    return keras.Sequential([layers.Input((6, 6, 1)), *body, layers.GlobalAveragePooling1D(), layers.Dense(3)])


def regularized() -> Any:
    middle = [layers.Conv2D(3, 3, activity_regularizer="l2"), layers.BatchNormalization()]
    return keras.Sequential(
        [layers.Input((6, 6, 1)), *middle, layers.Flatten(), layers.ActivityRegularization(0.01, 0.02), layers.Dense(3)]
    )


@pytest.mark.parametrize(
    ("build", "batch_size"),
    [
        (masked, BATCH),
        (regularized, BATCH),
        (lambda: sequential((4,), Table(BATCH)), BATCH),
        pytest.param(lambda: sequential((4,), Table(5)), BATCH, marks=pytest.mark.slow),
        pytest.param(lambda: sequential((BATCH, 4), Graph(BATCH)), BATCH, marks=pytest.mark.slow),
        pytest.param(lambda: sequential((5, 4), Graph(5)), BATCH, marks=pytest.mark.slow),
        pytest.param(frames, BATCH, marks=pytest.mark.slow),
        pytest.param(frames, None, marks=pytest.mark.slow),
        pytest.param(lambda: sequential((5, 4), TimesFirst()), None, marks=pytest.mark.slow),
        pytest.param(
            lambda: sequential((4,), Penalized(), layers.Dense(4, activity_regularizer=largest)),
            None,
            marks=pytest.mark.slow,
        ),
    ],
    ids=[
        "masked positions",
        "images, regularized",
        "table of as many rows as the batch",
        "table",
        "graph of as many nodes as the batch",
        "graph",
        "frames",
        "frames, any batch",
        "times first, any batch",
        "own losses and activity regularizers, any batch",
    ],
)
def test_partial_batch_trains_as_its_real_rows(build: Any, batch_size: int | None, twins: Any) -> None:
    pair = twins(build(), "mse", keras.optimizers.SGD(momentum=0.9), batch_size=batch_size)
    pair.model.optimizer.learning_rate, random = RATE, np.random.default_rng(2)
    for real in (BATCH, 3, 5):
        x = random.normal(size=(real, *pair.model.input_shape[1:])).astype(np.float32)
        y = random.normal(size=(real, 3)).astype(np.float32)
        rows = batch_size or real
        weight = np.array([rows / real] * real + [0] * (rows - real), np.float32)
        given = {key: np.concatenate([value, *[value[:1]] * (rows - real)]) for key, value in {"x": x, "y": y}.items()}
        found = pair.call("train", **given, sample_weight=weight, learning_rate=RATE)["loss"]
        pair.model.reset_metrics()
        assert float(found) == pytest.approx(float(pair.model.train_on_batch(x, y)), rel=2e-6, abs=1e-6)
    assert max(pair.differences().values()) < 2e-6
    for one, other in zip(*pair.slots(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
