"""Functions of any number of rows: lowered once, and equal to TensorFlow for each number."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from odt_sim.export.lowering import Trace, emit
from odt_sim.export.trace.inlining import inlined

ROWS = (1, 2, 3, 8, 12, 120)  # a probed number, fewer, more, and some between


def with_gradient(function: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    def both(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            total = tf.reduce_sum(y * y * y)
        return {"y": y, "dx": tape.gradient(total, x)}

    return both


def traced_and_lowered(function: Callable[[Any], dict[str, Any]], *shape: int) -> tuple[Any, Any]:
    """Return a function of `[rows, *shape]` as traced by TensorFlow, and lowered."""
    spec = tf.TensorSpec([None, *shape], name="x")
    concrete = tf.function(function, input_signature=[spec], autograph=False).get_concrete_function()
    trace = inlined(Trace(concrete, layers=()))
    operations = trace.live_operations(weights=())
    again = tf.function(lambda x: emit(trace, operations, {"x": x}, {}), input_signature=[spec], autograph=False)
    return concrete, again.get_concrete_function()


def rows_of(x: Any) -> Any:
    return tf.shape(x)[0]


def pairs(x: Any) -> Any:
    return tf.matmul(x, x, transpose_b=True)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rows from their mean": lambda x: x - tf.reduce_mean(x, 0),
    "each row from its mean": lambda x: x - tf.reduce_mean(x, 1, keepdims=True),
    "a softmax over the rows": lambda x: tf.nn.softmax(x, 0),
    "rows and columns exchanged": lambda x: tf.transpose(tf.reshape(tf.transpose(x), [2, 2, -1]), [2, 1, 0]),
    "every row with every row": lambda x: tf.matmul(tf.matmul(x, x, transpose_b=True), x),
    "rows repeated": lambda x: tf.reshape(tf.tile(x[:, tf.newaxis], [1, 3, 1]), [-1, 4]),
    "rows joined and parted": lambda x: tf.reshape(tf.reshape(x, [-1, 2]) * [1.0, 2.0], [rows_of(x), 2, 2]),
    "ones beside": lambda x: tf.concat([x, tf.ones([rows_of(x), 2])], 1),
    "a row for all": lambda x: tf.broadcast_to(tf.reduce_sum(x, 0), tf.shape(x)),
    "their numbers": lambda x: x * tf.cast(tf.range(rows_of(x))[:, tf.newaxis], tf.float32),
    "one of each row": lambda x: tf.gather(x, tf.argmax(x, 1), batch_dims=1),
    "slices": lambda x: x[:, 3:0:-2] - x[:, 1:3],
    "their number": lambda x: x / tf.cast(rows_of(x), tf.float32),
    "at most four": lambda x: x / tf.cast(tf.minimum(rows_of(x), 4), tf.float32),
    "at least two": lambda x: x / tf.cast(tf.maximum(rows_of(x), 2), tf.float32),
    "one more": lambda x: x / tf.cast(rows_of(x) + 1, tf.float32),
    "half of them": lambda x: x * tf.cast(rows_of(x) // 2, tf.float32),
    "more than one": lambda x: tf.cond(rows_of(x) > 1, lambda: x, lambda: 2.0 * x),
    "a diagonal of pairs": lambda x: tf.linalg.diag_part(pairs(x)),
    "a diagonal beside the main one": lambda x: tf.linalg.diag_part(pairs(tf.concat([x, x], 0)), k=-rows_of(x)),
    "another diagonal": lambda x: tf.linalg.set_diag(pairs(x), x[:, 0]),
    "a matrix with a diagonal": lambda x: tf.linalg.diag(x[:, 1], padding_value=2.0) * 0.5,
    "a tensor with a diagonal": lambda x: tf.linalg.tensor_diag(tf.linalg.tensor_diag_part(pairs(x))),
    "a band": lambda x: tf.linalg.band_part(pairs(x), 1, -1),
    "a unit matrix": lambda x: pairs(x) * (1.0 - tf.eye(rows_of(x))),
    "each row as a class": lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(rows_of(x)), pairs(x)),
    "every three rows": lambda x: tf.reduce_mean(pairs(x)[:, :, tf.newaxis] * pairs(x)[:, tf.newaxis], [1, 2]),
    "rows rolled": lambda x: x * tf.roll(x, [1, 2], [0, 1]),
    "rows reversed": lambda x: x[::-1] * x,
    "the last of each two rows": lambda x: tf.concat([x, x], 0)[1::2],
    "the first half": lambda x: tf.concat([x, 2.0 * x], 0)[: rows_of(x)] * x,
    "a corner of pairs": lambda x: pairs(tf.concat([x, 2.0 * x], 0))[: rows_of(x), rows_of(x) :],
    "steps between rows": lambda x: x[1:] - x[:-1],
    "the last row": lambda x: x[-1] * x[0],
    "even": lambda x: tf.where(tf.equal(rows_of(x) % 2, 0), x, -x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_rows_equals_tensorflow(name: str) -> None:
    expected, found = traced_and_lowered(with_gradient(FUNCTIONS[name]), 4)
    for rows in ROWS:
        x = tf.constant(np.random.default_rng(rows).integers(-2, 3, (rows, 4)).astype(np.float32))
        for key, value in expected(x).items():
            np.testing.assert_allclose(found(x)[key], value, rtol=1e-5, atol=1e-6, err_msg=f"{key} of {rows} rows")


@pytest.mark.parametrize("shape", [(3,), (8,), (2, 1, 3)])
def test_uniform_numbers_equal_tensorflow_bit_for_bit(shape: tuple[int, ...]) -> None:
    def function(x: Any) -> dict[str, Any]:
        return {"of each": tf.random.stateless_uniform(tf.shape(x), (5, 7)) + 0.0 * x}

    expected, found = traced_and_lowered(function, *shape)
    for rows in ROWS:
        x = tf.zeros([rows, *shape])
        np.testing.assert_array_equal(found(x)["of each"], expected(x)["of each"])


def test_shapes_are_computed_at_export() -> None:
    def function(x: Any) -> Any:
        flat = tf.reshape(x, [tf.shape(x)[0], tf.shape(x)[1] * tf.shape(x)[2]])
        return tf.reshape(flat - tf.reduce_mean(flat, 1, keepdims=True), tf.shape(x)) * tf.ones(tf.shape(x)[1:])

    traced, lowered = traced_and_lowered(with_gradient(function), 2, 3)
    shapes = {"Shape", "BroadcastGradientArgs", "Prod", "Pack", "BroadcastTo"}
    assert shapes & {op.type for op in traced.graph.get_operations()}
    assert not shapes & {op.type for op in lowered.graph.get_operations()}
