"""Elementwise ops on images, computed on rows: `[batch, height, width * channels]`.

XNNPACK applies one number per channel pixel by pixel, so repeating the numbers over a whole row is up to twice as fast. It
also copies a tensor that several ops use if one of them reshapes it, so all ops on an image use the same rows.
"""

from collections.abc import Callable

import tensorflow as tf

from odt_sim.export.lowering.creation import reshaped, shared

ELEMENTWISE = frozenset(
    """
    Abs Add AddV2 Ceil Exp Maximum Minimum Mul Neg RealDiv Relu6 Rsqrt Sigmoid Sqrt Square SquaredDifference Sub Tanh
    """.split()  # noqa: SIM905
)
"""Types of ops that may be computed on rows."""

FEWEST = 4
"""The minimum number of rows of an image; a kernel has fewer in this axis."""

MANY = 64
"""The number of channels from which XNNPACK is as fast pixel by pixel as on whole rows."""


def elementwise(compute: Callable[..., tf.Tensor], *operands: tf.Tensor | float) -> tf.Tensor:
    """Return an elementwise function of some tensors, computed on rows if one of them is an image.

    Args:
        compute: The function.
        operands: Tensors that broadcast to the shape of one of them, and numbers.
    """
    tensors = [x for x in operands if isinstance(x, tf.Tensor)]
    image = next((x.shape for x in tensors if is_image(x)), None)
    if image is None or not all(_fits(x.shape, image) for x in tensors):
        return compute(*operands)
    result = compute(*(_on_rows(x, image) for x in operands))
    return reshaped(result, [-1 if image[0] is None else image[0], *image[1:]])


def rows_of(image: tf.Tensor) -> tf.Tensor:
    """Return an image as rows."""
    batch, height, width, channels = image.shape
    return reshaped(image, [-1 if batch is None else batch, height, width * channels])


def is_image(x: tf.Tensor) -> bool:
    """Return whether a tensor is a float image with few channels, several rows and columns, and known sizes."""
    known = x.dtype == tf.float32 and x.shape.rank == 4 and None not in x.shape[1:]
    return bool(known and x.shape[1] >= FEWEST and x.shape[2] > 1 and x.shape[3] < MANY)


def is_reshaped(x: tf.Tensor) -> bool:
    """Return whether a tensor is such an image and the result of a reshape, as after a computation on rows."""
    return is_image(x) and x.op.type == "Reshape"


def _fits(shape: tf.TensorShape, image: tf.TensorShape) -> bool:
    """Return whether a tensor has the image's shape, or one number per channel, per example, or in total."""
    if shape.rank not in (0, 1, 4):  # the rank may be unknown
        return False
    sizes = [1] * (4 - shape.rank) + list(shape)
    return sizes == list(image) or (sizes[1:3] == [1, 1] and sizes[0] in (1, image[0]) and sizes[3] in (1, image[3]))


def _on_rows(x: tf.Tensor | float, image: tf.TensorShape) -> tf.Tensor | float:
    """Return an operand in the shape for an op on rows."""
    if not isinstance(x, tf.Tensor):
        return x
    if x.shape.rank == 4 and x.shape[1:] == image[1:]:
        return rows_of(x)
    width, channels = image[2:]
    examples = [] if x.shape.rank < 4 or x.shape[0] == 1 else [-1 if x.shape[0] is None else x.shape[0]]
    if x.shape.num_elements() == 1 or x.shape[-1] == 1:
        return reshaped(x, [*examples, 1, 1] if examples else [])
    return shared(("row", x.ref(), width), lambda: _repeated(x, examples, width, channels))


def _repeated(x: tf.Tensor, examples: list[int], width: int, channels: int) -> tf.Tensor:
    """Return one number per channel, repeated along a row without TILE, which has no kernel in XNNPACK."""
    row = reshaped(x, [*examples, 1, channels]) * tf.ones([width, 1])
    return reshaped(row, [*examples, 1, width * channels] if examples else [width * channels])
