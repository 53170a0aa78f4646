"""Elementwise ops on images give the same numbers on rows, and rarely copy."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.lowering.image_rows import MANY, elementwise

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3, 4, 5, 6)).astype(np.float32)


def computed(spec: list[int | None], *operands: Any) -> tuple[Any, list[Any]]:
    """Return X * a - a for an image of this shape, and the shapes (or a number) passed to the formula."""
    shapes: list[Any] = []

    def formula(x: tf.Tensor, a: tf.Tensor | float) -> tf.Tensor:
        shapes.extend([x.shape, a.shape] if isinstance(a, tf.Tensor) else [x.shape, a])
        return x * a - a

    @tf.function(input_signature=[tf.TensorSpec(spec)])
    def run(x: tf.Tensor) -> tf.Tensor:
        y = elementwise(formula, x, *(tf.constant(own) if isinstance(own, np.ndarray) else own for own in operands))
        assert y.shape == x.shape
        return y

    return run(tf.constant(X)), shapes


@pytest.mark.parametrize(
    ("batch", "shape", "row"),
    [
        (3, (6,), [30]),
        (3, (1, 1, 1, 6), [30]),
        (3, (3, 1, 1, 6), [3, 1, 30]),
        (3, (3, 1, 1, 1), [3, 1, 1]),
        (3, (1, 1, 1, 1), []),
        (3, (), []),
        (None, (6,), [30]),
        (None, (1, 1, 1, 6), [30]),
    ],
)
def test_numbers_per_channel_example_or_image_equal_broadcasting(batch: int | None, shape: Any, row: Any) -> None:
    a = np.asarray(RANDOM.normal(size=shape), np.float32)
    found, shapes = computed([batch, 4, 5, 6], a)
    np.testing.assert_array_equal(found, X * a - a)
    assert [list(own) for own in shapes] == [[batch, 4, 30], row]


def test_python_numbers_stay_numbers() -> None:
    found, shapes = computed([3, 4, 5, 6], 2.0)
    np.testing.assert_array_equal(found, X * np.float32(2) - np.float32(2))
    assert shapes == [[3, 4, 30], 2.0]


@pytest.mark.parametrize("shape", [(4, 5, 6), (5, 6), (1, 4, 1, 6), (1, 1, 5, 1)])
def test_other_broadcasts_stay_as_they_are(shape: Any) -> None:
    a = np.asarray(RANDOM.normal(size=shape), np.float32)
    found, shapes = computed([3, 4, 5, 6], a)
    np.testing.assert_array_equal(found, X * a - a)
    assert list(shapes[0]) == [3, 4, 5, 6]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_images_of_integers_stay_as_they_are(dtype: Any, same: Any) -> None:
    image = np.arange(2 * 4 * 5 * 3, dtype=dtype).reshape(2, 4, 5, 3)
    same(lambda image, mean: {"y": image - mean, "z": image * mean}, image=image, mean=np.array([1, 0, 2], dtype))


def test_operands_of_unknown_rank_stay_as_they_are() -> None:
    run = tf.function(
        lambda x, a: elementwise(lambda x, a: x * a, x, a),
        input_signature=[tf.TensorSpec([3, 4, 5, 6]), tf.TensorSpec(None)],
    )
    np.testing.assert_array_equal(run(X, X[:, :1]), X * X[:, :1])


def test_images_of_many_channels_stay_as_they_are() -> None:
    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        return elementwise(lambda x: x + x, x)

    graph = run.get_concrete_function(tf.TensorSpec([2, 3, 3, MANY])).graph
    assert not [op for op in graph.get_operations() if op.type == "Reshape"]


def test_training_a_residual_block_seldom_copies_images(tmp_path: Any) -> None:
    """XNNPACK reshapes in place only if the tensor and its reshaped form have one user each."""
    import keras

    from odt_sim.export import export_model
    from odt_sim.model.graph_reader import read_graph

    def normalized(x: Any) -> Any:
        return keras.layers.BatchNormalization()(keras.layers.Conv2D(16, 3, padding="same", use_bias=False)(x))

    inputs = keras.Input((24, 24, 16))
    x = keras.layers.ReLU()(normalized(inputs))
    x = keras.layers.ReLU()(keras.layers.Add()([inputs, normalized(x)]))
    network = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.GlobalAveragePooling2D()(x)))
    path = export_model(
        network,
        tmp_path / "model.tflite",
        optimizer=keras.optimizers.SGD(0.1),
        loss="sparse_categorical_crossentropy",
        batch_size=8,
    )
    graph = read_graph(path.read_bytes(), "model")
    subgraph = graph.subgraph("train")
    users = np.zeros(len(subgraph.tensors), int)
    for op in subgraph.ops:
        np.add.at(users, [i for i in op.inputs if i >= 0], 1)
    image = 8 * 24 * 24 * 16
    copies = [
        op
        for op in subgraph.ops
        if op.kind == "RESHAPE"
        and np.prod(subgraph.tensors[op.inputs[0]].shape) >= image
        and (users[op.inputs[0]], users[op.outputs[0]]) != (1, 1)
        and op.inputs[0] not in subgraph.inputs  # their memory does not belong to XNNPACK
    ]
    assert len(copies) <= 2
