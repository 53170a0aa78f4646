"""Activations right after products, convolutions and other ops that TensorFlow's converter fuses with them.

The converter loses a ReLU or a clip after a product of matrices at rank 2 by a variable matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers, ops

from odt_sim.model.editing.inference_only import inference_only
from tests.export.conftest import BATCH

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": ops.relu,
    "relu6": ops.relu6,
    "clip -1..1": lambda y: ops.clip(y, -1.0, 1.0),
    "clip 0..1": lambda y: ops.clip(y, 0.0, 1.0),
    "maximum": lambda y: ops.maximum(y, 0.0),
    "minimum of maximum": lambda y: ops.minimum(ops.maximum(y, -1.0), 1.0),
    "relu, biased": lambda y: ops.relu(y + 0.25),
    "relu of a reshape": lambda y: ops.relu(ops.reshape(y, (BATCH, -1))),
    "leaky_relu": ops.leaky_relu,
    "tanh": ops.tanh,
    "hard_sigmoid": ops.hard_sigmoid,
}


@dataclass(frozen=True)
class Op:
    """An op and the shapes of the weights that it takes besides its input."""

    function: Callable[..., Any]
    weights: tuple[tuple[int, ...], ...] = ()


def op(function: Callable[..., Any], *weights: tuple[int, ...]) -> Op:
    return Op(function, weights)


def einsum(equation: str, *kernel: int) -> Op:
    return op(lambda x, w: ops.einsum(equation, x, w), kernel)


FIXED = np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32)
ELEMENTWISE = {
    "add": op(lambda x, b: x + b, (5,)),
    "subtract": op(lambda x, b: x - b, (5,)),
    "subtract from": op(lambda x, b: b - x, (5,)),
    "multiply": op(lambda x, b: x * b, (5,)),
    "divide": op(lambda x, b: x / (b * b + 1.0), (5,)),
    "add two": op(lambda x, b: x * b + ops.flip(x, -1), (5,)),
    "concatenate": op(lambda x, b: ops.concatenate([x, x * b], -1), (5,)),
    "sum": op(lambda x, b: ops.sum(x * b, -1, keepdims=True), (5,)),
    "mean": op(lambda x, b: ops.mean(x * b, -1), (5,)),
}
ROWS = {
    "matmul": op(ops.matmul, (5, 3)),
    "matmul, one column": op(ops.matmul, (5, 1)),
    "matmul, vector": op(ops.matmul, (5,)),
    "matmul, transposed": op(lambda x, w: tf.matmul(x, w, transpose_b=True), (3, 5)),
    "matmul, twice": op(lambda x, v, w: x @ v @ w, (5, 4), (4, 3)),
    "matmul, constant": op(lambda x, b: (x * b) @ FIXED, (5,)),
    "matmul, bias": op(lambda x, w, b: x @ w + b, (5, 3), (3,)),
    "matmul, matrix added": op(lambda x, w, b: x @ w + b, (5, 3), (BATCH, 3)),
    "matmul, scaled": op(lambda x, w, b: x @ w * b, (5, 3), (3,)),
    "matmul, complex": op(lambda x, w: ops.real(tf.matmul(tf.complex(x, -x), tf.complex(w, 2.0 * w))), (5, 3)),
    "bias_add": op(lambda x, w, b: tf.nn.bias_add(x @ w, b), (5, 3), (3,)),
    "batch product": op(lambda x, w: tf.raw_ops.BatchMatMulV2(x=x, y=w), (5, 3)),
    "tensordot": op(lambda x, w: ops.tensordot(x, w, 1), (5, 3, 2)),
    "dot": op(ops.dot, (5, 3)),
    "outer": op(lambda x, w: ops.outer(x, w), (3,)),
    "einsum": einsum("bd,dk->bk", 5, 3),
    "einsum, transposed": einsum("bd,kd->bk", 3, 5),
    "einsum, heads": einsum("bd,dhk->bhk", 5, 3, 2),
    "einsum, experts": einsum("bd,edh->beh", 3, 5, 2),
    "einsum, dots": einsum("...b,bc->...c", 5, 3),
    "einsum, vector": einsum("bd,d->b", 5),
    "einsum, outer": einsum("bd,hk->bhkd", 2, 3),
    "einsum, elements": einsum("bd,d->bd", 5),
    **ELEMENTWISE,
}
SEQUENCES = {
    "matmul": op(ops.matmul, (5, 3)),
    "matmul, batched": op(lambda x, w: ops.matmul(x, w * ops.transpose(x, (0, 2, 1))), (5, 1)),
    "matmul, bias": op(lambda x, w, b: x @ w + b, (5, 3), (3,)),
    "matmul of rank 4": op(lambda x, w: ops.reshape(x, (-1, 2, 2, 5)) @ w, (5, 3)),
    "tensordot": op(lambda x, w: ops.tensordot(x, w, 1), (5, 3)),
    "tensordot, two axes": op(lambda x, w: ops.tensordot(x, w, 2), (4, 5, 3)),
    "einsum": einsum("btd,dk->btk", 5, 3),
    "einsum, heads": einsum("btd,dhk->bthk", 5, 3, 2),
    "einsum, two axes": einsum("btd,tdk->bk", 4, 5, 3),
    "einsum, experts": einsum("btd,edh->beth", 3, 5, 2),
    "einsum, of an axis": einsum("btd,th->bhd", 4, 3),
    "einsum, transposed": einsum("btd,hkt->bhkd", 3, 2, 4),
    "einsum, batched": einsum("btd,tdk->btk", 4, 5, 3),
    "einsum, scores": op(lambda x, w: ops.einsum("btd,bsd->bts", x * w, x), (5,)),
    "conv": op(ops.conv, (2, 5, 3)),
    "conv, same": op(lambda x, w: ops.conv(x, w, padding="same"), (3, 5, 3)),
    "conv_transpose": op(lambda x, w: ops.conv_transpose(x, w, 2), (3, 2, 5)),
    "depthwise_conv": op(ops.depthwise_conv, (2, 5, 1)),
    "separable_conv": op(ops.separable_conv, (2, 5, 2), (1, 10, 3)),
    "max_pool": op(lambda x, b: ops.max_pool(x * b, 2), (5,)),
    "average_pool": op(lambda x, b: ops.average_pool(x * b, 2), (5,)),
    **ELEMENTWISE,
}
IMAGES = {
    "matmul of rank 4": op(ops.matmul, (5, 3)),
    "matmul, batched": op(ops.matmul, (4, 5, 3)),
    "einsum": einsum("bhwc,cd->bhwd", 5, 3),
    "einsum, rows": einsum("bhwc,hwcd->bd", 4, 4, 5, 3),
    "conv": op(ops.conv, (3, 3, 5, 3)),
    "conv, same": op(lambda x, w: ops.conv(x, w, padding="same"), (3, 3, 5, 3)),
    "conv, strides": op(lambda x, w: ops.conv(x, w, 2), (3, 3, 5, 3)),
    "conv, dilated": op(lambda x, w: ops.conv(x, w, dilation_rate=2), (2, 2, 5, 3)),
    "conv of whole": op(ops.conv, (4, 4, 5, 3)),
    "conv of pixels": op(ops.conv, (1, 1, 5, 3)),
    "conv of grey": op(lambda x, w: ops.conv(x[..., :1], w), (3, 3, 1, 3)),
    "conv, bias": op(lambda x, w, b: ops.conv(x, w) + b, (3, 3, 5, 3), (3,)),
    "conv, scaled": op(lambda x, w, b: ops.conv(x, w) * b, (3, 3, 5, 3), (3,)),
    "conv of pixels, bias": op(lambda x, w, b: ops.conv(x, w) + b, (1, 1, 5, 3), (3,)),
    "conv, groups": op(lambda x, w: ops.conv(ops.concatenate([x, x], -1), w), (3, 3, 5, 4)),
    "conv, pooled": op(lambda x, w: ops.max_pool(ops.conv(x, w), 2), (3, 3, 5, 3)),
    "conv_transpose": op(lambda x, w: ops.conv_transpose(x, w, 2), (3, 3, 2, 5)),
    "conv_transpose, bias": op(lambda x, w, b: ops.conv_transpose(x, w, 2) + b, (3, 3, 2, 5), (2,)),
    "depthwise_conv": op(ops.depthwise_conv, (2, 2, 5, 1)),
    "depthwise_conv, bias": op(lambda x, w, b: ops.depthwise_conv(x, w) + b, (2, 2, 5, 2), (10,)),
    "depthwise_conv, strides": op(lambda x, w: ops.depthwise_conv(x, w, 2), (3, 3, 5, 1)),
    "separable_conv": op(ops.separable_conv, (2, 2, 5, 2), (1, 1, 10, 3)),
    "max_pool": op(lambda x, b: ops.max_pool(x * b, 2), (5,)),
    "average_pool": op(lambda x, b: ops.average_pool(x * b, 2), (5,)),
    "mean of images": op(lambda x, b: ops.mean(x * b, (1, 2)), (5,)),
    "resize": op(lambda x, b: ops.image.resize(x * b, (6, 6)), (5,)),
    "pad": op(lambda x, b: ops.pad(x * b, [[0, 0], [1, 1], [1, 1], [0, 0]]), (5,)),
    **ELEMENTWISE,
}
VOLUMES = {
    "matmul of rank 5": op(ops.matmul, (5, 3)),
    "conv": op(ops.conv, (2, 2, 2, 5, 3)),
    "conv, bias": op(lambda x, w, b: ops.conv(x, w) + b, (2, 2, 2, 5, 3), (3,)),
    "conv_transpose": op(lambda x, w: ops.conv_transpose(x, w, 2), (2, 2, 2, 2, 5)),
    "max_pool": op(lambda x, b: ops.max_pool(x * b, 2), (5,)),
    "average_pool": op(lambda x, b: ops.average_pool(x * b, 2), (5,)),
    "add": op(lambda x, b: x + b, (5,)),
}
FAMILIES = {
    (5,): ROWS,
    (4, 5): SEQUENCES,
    (4, 4, 5): IMAGES,
    (2, 2, 4, 5): VOLUMES,
}
"""The ops by the shape of an example that they take."""


class Branches(layers.Layer):  # type: ignore[misc]
    """The results of all activations after each op, side by side; each pair has its own weights.

    Attributes:
        kinds: The ops.
        columns: The number of results of each pair.
    """

    def __init__(self, kinds: dict[str, Op]) -> None:
        super().__init__()
        self.kinds, self.columns = kinds, dict[tuple[str, str], int]()

    def build(self, shape: Any) -> None:
        normal = keras.initializers.RandomNormal(stddev=0.4, seed=1)
        self.weights_of = {
            (name, activation): [self.add_weight(shape=size, initializer=normal.clone()) for size in kind.weights]
            for name, kind in self.kinds.items()
            for activation in ACTIVATIONS
        }

    def call(self, x: Any) -> Any:
        results = []
        for (name, activation), weights in self.weights_of.items():
            y = ACTIVATIONS[activation](self.kinds[name].function(x, *map(ops.convert_to_tensor, weights)))
            results.append(ops.reshape(y, (BATCH, -1)))
            self.columns[name, activation] = int(results[-1].shape[1])
        return ops.concatenate(results, -1)

    def different(self, found: Any, expected: Any) -> list[tuple[str, str]]:
        """Return the pairs whose results differ."""
        ends = np.cumsum(list(self.columns.values()))[:-1]
        parts = zip(self.columns, np.split(found, ends, -1), np.split(expected, ends, -1), strict=True)
        return [pair for pair, a, b in parts if not np.allclose(a, b, rtol=1e-4, atol=1e-5)]


def half_of_squares(y_true: Any, y_pred: Any) -> Any:
    return 0.5 * ops.sum(ops.square(y_pred - y_true), -1)


@pytest.mark.slow
@pytest.mark.parametrize("shape", FAMILIES, ids=str)
def test_activation_after_an_op_is_kept(shape: tuple[int, ...], twins: Any) -> None:
    keras.utils.set_random_seed(1)
    x = layers.Input(batch_shape=(BATCH, *shape))
    image = layers.Reshape((-1, 1, 5))(x)
    branches = Branches(FAMILIES[shape])
    body = layers.Reshape(shape)(layers.Conv2D(5, 1)(image))  # files with convolutions also contain native inference
    twin = twins(keras.Model(x, branches(body)), half_of_squares)
    values = twin.batch()[0]
    expected = np.asarray(twin.model(values))
    native = Interpreter(model_content=inference_only(twin.path.read_bytes(), "m"), num_threads=1)
    for interpreter in (twin.interpreter, native):
        found = interpreter.get_signature_runner("infer")(x=values)["logits"]
        assert branches.different(found, expected) == []
    twin.agree((BATCH,))
