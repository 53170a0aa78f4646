"""Four files without signatures that form one model, as in TensorFlow's first transfer learning demo for Android.

The app stores the head's weights and passes them to each file.
"""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from dialects.models import CLASSES, HIDDEN, Perceptron, function, of_x, of_y, spec, write
from odt_sim.model.reading.graph_reader import IDENTIFIER

KERNEL, BIAS = spec([HIDDEN, CLASSES]), spec([CLASSES])


def initialize() -> dict[str, tf.Tensor]:
    kernel = np.random.default_rng(0).normal(0, 0.5, (HIDDEN, CLASSES)).astype(np.float32)
    return {"kernel": tf.constant(kernel), "bias": tf.zeros([CLASSES])}


def bottleneck(model: Perceptron) -> Any:
    return function(lambda x: {"bottleneck": model.hidden(x)}, x=of_x(20))


def train_head(bottleneck: tf.Tensor, y: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> dict[str, tf.Tensor]:
    logarithms = tf.nn.log_softmax(tf.matmul(bottleneck, kernel) + bias)
    error = (tf.exp(logarithms) - y) / 20.0
    loss = -tf.reduce_mean(tf.reduce_sum(y * logarithms, axis=1))
    return {"loss": loss, "d_kernel": tf.matmul(bottleneck, error, transpose_a=True), "d_bias": tf.reduce_sum(error, 0)}


def optimizer(
    kernel: tf.Tensor, bias: tf.Tensor, d_kernel: tf.Tensor, d_bias: tf.Tensor, rate: tf.Tensor
) -> dict[str, tf.Tensor]:
    return {"kernel": kernel - rate * d_kernel, "bias": bias - rate * d_bias}


def momentum(
    kernel: tf.Tensor, bias: tf.Tensor, d_kernel: tf.Tensor, d_bias: tf.Tensor, m_kernel: tf.Tensor, m_bias: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Return new weights and the new state of an optimizer whose rate is a constant."""
    m_kernel, m_bias = 0.9 * m_kernel + d_kernel, 0.9 * m_bias + d_bias
    return {"kernel": kernel - 0.1 * m_kernel, "bias": bias - 0.1 * m_bias, "m_kernel": m_kernel, "m_bias": m_bias}


def write_all(folder: Path) -> None:
    model = Perceptron()
    head = {"kernel": KERNEL, "bias": BIAS}
    gradients = {"d_kernel": KERNEL, "d_bias": BIAS}
    functions = {
        "four_files_initialize": function(initialize),
        "four_files_bottleneck": bottleneck(model),
        "four_files_train_head": function(train_head, bottleneck=spec([20, HIDDEN]), y=of_y(rows=20), **head),
        "four_files_optimizer": function(optimizer, **head, **gradients, rate=spec([])),
        "four_files_momentum": function(momentum, **head, **gradients, m_kernel=KERNEL, m_bias=BIAS),
    }
    for name, own in functions.items():
        path = folder / f"{name}.tflite"
        write(path, model, {"serving_default": own}, {}, rows=20, weights=[])
        path.write_bytes(without_signatures(path.read_bytes()))


def without_signatures(content: bytes) -> bytes:
    import flatbuffers

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    model.signatureDefs = []
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())
