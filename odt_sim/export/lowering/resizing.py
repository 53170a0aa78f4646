"""Resizing of images with kernels that TFLite lacks: bicubic, by area, and with antialiasing.

Each of them is Y = R X S^T with constant matrices R for the rows and S for the columns; the gradient is R^T dY S.
"""

from collections.abc import Callable

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.registry import Memo, Value, lowers

Resize = Callable[[tf.Tensor, list[int]], tf.Tensor]


def _with_settings(op: tf.Operation, resize: Callable[..., tf.Tensor], *names: str) -> Resize:
    settings = {name: op.get_attr(name) for name in names}
    return lambda images, size: resize(images=images, size=size, **settings)


@lowers("ResizeBicubic")
def bicubic(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = R X S^T with the matrices of bicubic interpolation."""
    resize = _with_settings(op, tf.raw_ops.ResizeBicubic, "align_corners", "half_pixel_centers")
    return [_applied(inputs[0], [_matrix(resize, *sizes) for sizes in _sizes(inputs[0], op.outputs[0])])]


@lowers("ResizeBicubicGrad")
def bicubic_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = R^T dY S with the matrices of bicubic interpolation."""
    resize = _with_settings(op, tf.raw_ops.ResizeBicubic, "align_corners", "half_pixel_centers")
    return [_applied(inputs[0], [tf.transpose(_matrix(resize, *s)) for s in _sizes(op.outputs[0], inputs[0])])]


@lowers("ResizeArea")
def area(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = R X S^T with the matrices of means over areas."""
    resize = _with_settings(op, tf.raw_ops.ResizeArea, "align_corners")
    return [_applied(inputs[0], [_matrix(resize, *sizes) for sizes in _sizes(inputs[0], op.outputs[0])])]


@lowers("ScaleAndTranslate")
def scale_and_translate(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = R X S^T with the matrices of a scaling kernel, as for resizing with antialiasing."""
    images, _, scale, translation = inputs
    return [_applied(images, _scalings(op, scale, translation, images, op.outputs[0]))]


@lowers("ScaleAndTranslateGrad")
def scale_and_translate_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = R^T dY S with the matrices of a scaling kernel."""
    gradient, _, scale, translation = inputs
    matrices = _scalings(op, scale, translation, op.outputs[0], gradient)
    return [_applied(gradient, [tf.transpose(matrix) for matrix in matrices])]


def _scalings(
    op: tf.Operation, scale: tf.Tensor, translation: tf.Tensor, x: tf.Tensor, y: tf.Tensor
) -> list[tf.Tensor]:
    """Return the matrices of the rows and of the columns."""
    matrices = []
    for axis, sizes in enumerate(_sizes(x, y)):
        own = {"scale": [float(known(scale)[axis]), 1.0], "translation": [float(known(translation)[axis]), 0.0]}
        own |= {"kernel_type": op.get_attr("kernel_type").decode(), "antialias": op.get_attr("antialias")}
        resize = lambda images, size, own=own: tf.raw_ops.ScaleAndTranslate(images=images, size=size, **own)  # noqa: E731
        matrices.append(_matrix(resize, *sizes))
    return matrices


def _sizes(x: tf.Tensor, y: tf.Tensor) -> list[tuple[int, int]]:
    """Return the old and the new size of the rows and of the columns."""
    return [(x.shape[axis], y.shape[axis]) for axis in (1, 2)]


def _matrix(resize: Resize, size: int, new_size: int) -> tf.Tensor:
    """Return the matrix that resizes one axis, `[new_size, size]`: its columns are the images of the unit vectors."""
    with tf.init_scope():
        units = tf.reshape(tf.eye(size), [size, size, 1, 1])
        matrix = resize(units, [new_size, 1]).numpy().reshape(size, new_size)
    return tf.constant(matrix.T)


def _applied(x: tf.Tensor, matrices: list[tf.Tensor]) -> tf.Tensor:
    """Return R X S^T for each image and channel."""
    rows, columns = matrices
    _, height, width, channels = x.shape
    x = tf.cast(x, tf.float32)
    upright = tf.matmul(rows[tf.newaxis], reshaped(x, [-1, height, width * channels]))
    across = tf.matmul(columns[tf.newaxis], reshaped(upright, [-1, width, channels]))
    return reshaped(across, [-1, rows.shape[0], columns.shape[0], channels])
