"""BatchNormalization of a 1x1 convolution's output without passes over that output.

With y = x W and centred inputs c = x - mean(x), the variance of y is diag(W^T C W) for C = mean(c^T c), a small matrix. So
BatchNormalization becomes one convolution, z = c (W s) + beta with s = gamma / sqrt(variance + epsilon), and its gradients
need c^T dz and sum(dz) only. This is cheaper if the convolution has several times as many filters as channels.
"""

from typing import Any

import keras
import tensorflow as tf

TIMES = 4
"""The minimum number of filters per channel: 2 gain nothing in the blocks of MobileNet."""


def folds(layer: keras.layers.BatchNormalization) -> bool:
    """Return whether `normalized` can compute a normalization in training."""
    unchanged = type(layer).call is keras.layers.BatchNormalization.call  # no subclass overrides it
    usual = not getattr(layer, "renorm", False) and not layer.synchronized and layer.compute_dtype == "float32"
    return bool(layer.trainable and unchanged and usual and layer.axis in (-1, 3))


def convolution_of(y: tf.Tensor) -> tf.Operation | None:
    """Return the 1x1 convolution that computes `y` if it has enough filters; else None."""
    op = y.op
    if op.type != "Conv2D" or y.dtype != tf.float32 or not y.shape.is_fully_defined():
        return None
    x, kernel = op.inputs
    plain = op.get_attr("data_format") == b"NHWC" and list(op.get_attr("strides")) == [1, 1, 1, 1]
    fits = list(kernel.shape[:3]) == [1, 1, x.shape[3]] and tuple(x.shape[:3]) == tuple(y.shape[:3])
    return op if plain and fits and TIMES * x.shape[3] <= y.shape[3] else None


def normalized(
    layer: keras.layers.BatchNormalization, convolution: tf.Operation, share: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the normalized output of a 1x1 convolution, and the mean and variance, both without gradients.

    Args:
        layer: The normalization.
        convolution: A traced Conv2D with stride 1.
        share: The share of each row of the batch in mean and variance, `[batch]`.
    """
    x, kernel = convolution.inputs
    filters = kernel.shape[3]
    scale = tf.ones([filters]) if layer.gamma is None else tf.convert_to_tensor(layer.gamma)
    offset = tf.zeros([filters]) if layer.beta is None else tf.convert_to_tensor(layer.beta)
    rows, height, width, channels = x.shape
    weight = tf.reshape(share * (1.0 / (height * width)), [rows, 1, 1, 1])  # of each position in the means

    def product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(x, tf.reshape(kernel, [1, *kernel.shape]), 1, "VALID")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def folded(x: tf.Tensor, kernel: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> Any:
        matrix = tf.reshape(kernel, [1, channels, filters])  # the shape that its products need
        mean = tf.reduce_sum(tf.reduce_mean(x, [1, 2]) * tf.reshape(share, [rows, 1]), 0)
        centred = x - mean
        flat = tf.reshape(centred, [rows, height * width, channels])
        moments = tf.matmul(flat, flat, transpose_a=True)
        moments = tf.reduce_sum(moments * tf.reshape(weight, [rows, 1, 1]), 0, keepdims=True)
        spread = tf.matmul(moments, matrix)
        variance = tf.reduce_sum(matrix * spread, [0, 1])
        root = tf.math.rsqrt(variance + layer.epsilon)
        factor = scale * root
        scaled = matrix * factor

        def gradient(dz: tf.Tensor, *of_moments: tf.Tensor) -> list[tf.Tensor]:
            doffset = tf.reduce_sum(dz, [0, 1, 2])
            by_inputs = tf.raw_ops.Conv2DBackpropFilter(
                input=centred,
                filter_sizes=kernel.shape,
                out_backprop=dz,
                strides=[1, 1, 1, 1],
                padding="VALID",
            )
            by_inputs = tf.reshape(by_inputs, [1, channels, filters])
            dscale = tf.reduce_sum(matrix * by_inputs, [0, 1]) * root
            slope = root * dscale
            dkernel = (by_inputs - spread * slope) * factor
            dx = tf.raw_ops.Conv2DBackpropInput(
                input_sizes=x.shape,
                filter=tf.reshape(scaled, kernel.shape),
                out_backprop=dz,
                strides=[1, 1, 1, 1],
                padding="VALID",
            )
            by_variance = product(centred, tf.matmul(scaled * slope, matrix, transpose_b=True))
            by_mean = tf.reduce_sum(scaled * doffset, [0, 2])
            return [dx - (by_variance + by_mean) * weight, tf.reshape(dkernel, kernel.shape), dscale, doffset]

        return (
            product(centred, scaled) + offset,
            tf.reduce_sum(tf.expand_dims(mean, 1) * matrix, [0, 1]),
            variance,
        ), gradient

    z, mean, variance = folded(x, kernel, scale, offset)
    return z, tf.stop_gradient(mean), tf.stop_gradient(variance)
