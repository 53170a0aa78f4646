"""Built-in ops, imported into TensorFlow, compute what LiteRT computes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from dialects.models import convert, function, spec

from odt_sim.model.reading.graph_reader import read_graph

pytestmark = pytest.mark.slow


def cases() -> dict[str, Callable[[Any], Any]]:
    """Return functions of x, `[2, 6, 6, 4]` in (0.1, 2), by the op that they become."""
    import tensorflow as tf

    raw, nn = tf.raw_ops, tf.nn
    random = np.random.default_rng(0)
    kernel = random.normal(size=(3, 3, 4, 5)).astype(np.float32)
    flat = lambda x: tf.reshape(x, [2, 144])  # noqa: E731
    weights = random.normal(size=(144, 7)).astype(np.float32)
    integers = lambda x: tf.cast(x * 3, tf.int32)  # noqa: E731
    return {
        "ABS": lambda x: tf.abs(x - 1),
        "ARG_MAX": lambda x: tf.argmax(x, 3, tf.int32),
        "ARG_MIN": lambda x: tf.argmin(x, 1),
        "AVERAGE_POOL_2D": lambda x: nn.avg_pool2d(x, 3, 2, "SAME"),
        "BATCH_MATMUL": lambda x: tf.matmul(x, x, transpose_b=True),
        "BATCH_TO_SPACE_ND": lambda x: raw.BatchToSpaceND(input=x, block_shape=[2, 1], crops=[[0, 1], [0, 0]]),
        "BROADCAST_TO": lambda x: tf.broadcast_to(x[:, :1], [2, 3, 6, 4]),
        "CEIL": tf.math.ceil,
        "CONCATENATION": lambda x: tf.concat([x, x + 1], 2),
        "CONV_2D": lambda x: nn.relu6(nn.conv2d(x, kernel, [2, 1], "SAME") + np.float32(0.5)),
        "CONV_2D dilated": lambda x: nn.conv2d(x, kernel, 1, "VALID", dilations=2),
        "COS": tf.cos,
        "CUMSUM": lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True),
        "DEPTHWISE_CONV_2D": lambda x: nn.depthwise_conv2d(x, kernel[..., :2], [1, 1, 1, 1], "SAME"),
        "DIV": lambda x: tf.truncatediv(integers(x), 2),
        "ELU": lambda x: nn.elu(x - 1),
        "EQUAL": lambda x: tf.cast(tf.equal(integers(x), 2), tf.float32),
        "FILL": lambda x: tf.fill(integers(x)[0, 0, 0, :2] + 1, 0.5),
        "FLOOR_DIV": lambda x: tf.math.floordiv(integers(x) - 3, 2),
        "FLOOR_MOD": lambda x: tf.math.floormod(x - 1, 0.3),
        "FULLY_CONNECTED": lambda x: nn.relu(tf.matmul(flat(x), weights) + np.arange(7, dtype=np.float32)),
        "GATHER": lambda x: tf.gather(x, [2, 0], axis=2),
        "GATHER batched": lambda x: tf.gather(x, [[1], [0]], axis=1, batch_dims=1),
        "GATHER_ND": lambda x: tf.gather_nd(x, [[1, 2], [0, 5]]),
        "GELU": lambda x: nn.gelu(x - 1, approximate=True),
        "GREATER": lambda x: tf.cast(x > 1, tf.float32),
        "HARD_SWISH": lambda x: x * nn.relu6(x + 3) * np.float32(1 / 6),
        "L2_NORMALIZATION": lambda x: tf.math.l2_normalize(x, -1),
        "LEAKY_RELU": lambda x: nn.leaky_relu(x - 1, 0.1),
        "LOG_SOFTMAX": lambda x: nn.log_softmax(flat(x)),
        "LOGISTIC": tf.sigmoid,
        "MAX_POOL_2D": lambda x: nn.max_pool2d(x, [2, 3], [1, 2], "VALID"),
        "MEAN": lambda x: tf.reduce_mean(x, [1, 2], keepdims=True),
        "MIRROR_PAD": lambda x: tf.pad(x, [[0, 0], [2, 1], [0, 0], [0, 0]], "REFLECT"),
        "ONE_HOT": lambda x: tf.one_hot(integers(x)[:, 0, 0], 4, on_value=2.0, off_value=-1.0, axis=1),
        "PACK": lambda x: tf.stack([x, 2 * x], 1),
        "PADV2": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 0], [0, 3]], constant_values=1.5),
        "POW": lambda x: tf.pow(x, 1.7),
        "PRELU": lambda x: nn.relu(x) + np.full((1, 1, 4), -0.2, np.float32) * nn.relu(-x),
        "MATRIX_DIAG": tf.linalg.diag,
        "SEGMENT_SUM": lambda x: tf.math.segment_sum(flat(x), [0, 1]),
        "RANGE": lambda x: tf.range(integers(x)[0, 0, 0, 0] + 3),
        "REDUCE_ANY": lambda x: tf.cast(tf.reduce_any(x > 1.9, 1), tf.int32),
        "REDUCE_MAX": lambda x: tf.reduce_max(x, [2, 3]),
        "REDUCE_PROD": lambda x: tf.reduce_prod(x, 1),
        "RESIZE_BILINEAR": lambda x: tf.image.resize(x, [4, 9]),
        "RESIZE_NEAREST_NEIGHBOR": lambda x: tf.image.resize(x, [9, 4], "nearest"),
        "REVERSE_V2": lambda x: tf.reverse(x, [1]),
        "ROUND": lambda x: tf.round(x * 3.3),
        "SCATTER_ND": lambda x: tf.scatter_nd([[1], [3]], flat(x), [5, 144]),
        "SELECT_V2": lambda x: tf.where(x > 1, x, x[:, :1]),
        "SLICE": lambda x: tf.slice(x, [0, 1, 2, 0], [2, 3, -1, 2]),
        "SOFTMAX": lambda x: nn.softmax(flat(x)),
        "SPACE_TO_BATCH_ND": lambda x: raw.SpaceToBatchND(input=x, block_shape=[2, 2], paddings=[[1, 1], [0, 0]]),
        "SPLIT": lambda x: tf.split(x, 3, 2)[1] * 2,
        "SPLIT_V": lambda x: tf.split(x, [1, 5], 1)[1] * 2,
        "SQUARED_DIFFERENCE": lambda x: tf.math.squared_difference(x, 2.0),
        "STRIDED_SLICE": lambda x: x[:, ::-2, 1:5:3, None, -1],
        "TANH": tf.tanh,
        "TILE": lambda x: tf.tile(x, [1, 2, 1, 3]),
        "TOPK_V2": lambda x: nn.top_k(flat(x), 5)[0],
        "TRANSPOSE": lambda x: tf.transpose(x, [3, 1, 0, 2]),
        "TRANSPOSE_CONV": lambda x: nn.conv2d_transpose(x, kernel[..., :4, :].transpose(0, 1, 3, 2), [2, 12, 12, 5], 2),
        "UNPACK": lambda x: tf.unstack(x, axis=1)[2] * 2,
        "UNSORTED_SEGMENT_SUM": lambda x: tf.math.unsorted_segment_sum(flat(x), [2, 2], 4),
        "IF": lambda x: tf.cond(tf.reduce_sum(x) > 1, lambda: x + 1, lambda: x - 1),
        "WHILE": lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * y), (0, x), maximum_iterations=5)[
            1
        ],
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a signature per case."""
    import tensorflow as tf

    path = tmp_path_factory.mktemp("ops") / "ops.tflite"
    x = spec([2, 6, 6, 4])
    signatures = {name: function(lambda x, call=call: {"y": call(x)}, x=x) for name, call in cases().items()}
    convert(tf.Module(), signatures, path, flex=False)
    return path


def test_imported_ops_compute_what_litert_computes(file: Path) -> None:
    from odt_sim.export.importing import Program

    content = file.read_bytes()
    graph = read_graph(content, "ops")
    program, lite = Program.of(graph), Interpreter(model_content=content, num_threads=1)
    x = np.random.default_rng(1).uniform(0.1, 2, (2, 6, 6, 4)).astype(np.float32)
    for name in cases():
        assert name.partition(" ")[0] in {op.kind for op in graph.ops(name)}, name
        expected = lite.get_signature_runner(name)(x=x)["y"]
        (found,) = program.trace(name).concrete(x=x).values()
        assert found.dtype.as_numpy_dtype == expected.dtype, name
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6, err_msg=name)
