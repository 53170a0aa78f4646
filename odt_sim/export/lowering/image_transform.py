"""Projective transforms of images, such as random rotations, translations and zooms.

As TensorFlow defines it, the gradient of such a transform is the transform of the gradient by the inverse matrix.
"""

from collections.abc import Callable

import tensorflow as tf

from odt_sim.export.lowering.constant_folding import known
from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.registry import Memo, Value, lowers


def _reflected(position: tf.Tensor, size: int) -> tf.Tensor:
    """Mirror the pixels at the border: dcba|abcd|dcba."""
    inside = position - 2.0 * size * tf.floor(position / (2.0 * size))
    mirrored = tf.where(inside >= size, 2.0 * size - 1.0 - inside, inside)
    return tf.clip_by_value(mirrored, 0.0, size - 1.0)


def _wrapped(position: tf.Tensor, size: int) -> tf.Tensor:
    """Repeat the pixels: abcd|abcd|abcd, as TensorFlow does, with periods that meet at size - 1."""
    if size == 1:
        return tf.zeros_like(position)
    below = position + size * (tf.floor(-position / (size - 1.0)) + 1.0)
    above = position - size * tf.floor(position / (size - 1.0))
    wrapped = tf.where(position < 0.0, below, tf.where(position > size - 1.0, above, position))
    return tf.clip_by_value(wrapped, 0.0, size - 1.0)


FILLS: dict[bytes, Callable[[tf.Tensor, int], tf.Tensor]] = {
    b"CONSTANT": lambda position, size: tf.clip_by_value(position, -2.0, size + 1.0),
    b"NEAREST": lambda position, size: tf.clip_by_value(position, 0.0, size - 1.0),
    b"REFLECT": _reflected,
    b"WRAP": _wrapped,
}
"""The position to read for a position outside an image, by fill mode; the fill value lies beyond the border."""


@lowers("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def projective_transform(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y[y, x] = X at ((a3 x + a4 y + a5) / k, (a0 x + a1 y + a2) / k) with k = a6 x + a7 y + 1."""
    images, transforms, shape, *value = inputs
    height, width = (int(n) for n in known(shape))
    x, y, infinite = _positions(transforms, height, width)
    place = FILLS[op.get_attr("fill_mode")]
    rows, columns, channels = images.shape[1:]
    x, y = place(x, columns), place(y, rows)
    fill = tf.cast(value[0] if value else 0.0, images.dtype)
    read = _reader(images, fill)
    result = (_nearest if op.get_attr("interpolation") == b"NEAREST" else _bilinear)(read, y, x)
    result = tf.where(infinite[..., tf.newaxis], fill, result)
    return [reshaped(result, [-1 if images.shape[0] is None else images.shape[0], height, width, channels])]


def _positions(transforms: tf.Tensor, height: int, width: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return each result pixel's source position, and whether that is infinitely far, `[batch or 1, pixels]`."""
    grid_y, grid_x = (reshaped(g, [1, -1]) for g in tf.meshgrid(*map(_numbers, (height, width)), indexing="ij"))
    a = tf.split(tf.cast(transforms, tf.float32), 8, axis=1)
    k = a[6] * grid_x + a[7] * grid_y + 1.0
    infinite = tf.equal(k, 0.0)
    k = tf.where(infinite, tf.ones_like(k), k)
    return (a[0] * grid_x + a[1] * grid_y + a[2]) / k, (a[3] * grid_x + a[4] * grid_y + a[5]) / k, infinite


def _numbers(count: int) -> tf.Tensor:
    return tf.range(count, dtype=tf.float32)


Reader = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def _reader(images: tf.Tensor, value: tf.Tensor) -> Reader:
    """Return a function that reads the pixels at whole positions.

    The function takes y and x, `[batch or 1, pixels]`, and returns `[batch, pixels, channels]`.
    """
    batch, rows, columns, channels = images.shape
    flat = reshaped(images, [-1 if batch is None else batch, rows * columns, channels])

    def read(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        inside = tf.logical_and(_within(y, rows), _within(x, columns))
        index = tf.cast(
            tf.clip_by_value(y, 0.0, rows - 1.0) * columns + tf.clip_by_value(x, 0.0, columns - 1.0), tf.int32
        )
        one = index.shape[0] == 1  # the same transform for all images
        pixels = tf.gather(flat, index[0], axis=1) if one else tf.gather(flat, index, axis=1, batch_dims=1)
        return tf.where(inside[..., tf.newaxis], pixels, value)

    return read


def _within(position: tf.Tensor, size: int) -> tf.Tensor:
    return tf.logical_and(position >= 0.0, position <= size - 1.0)


def _nearest(read: Reader, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Return the pixel with the closest center; halves are rounded away from zero."""
    return read(*(tf.sign(p) * tf.floor(tf.abs(p) + 0.5) for p in (y, x)))


def _bilinear(read: Reader, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Return the mean of the four pixels around each position, weighted by closeness."""
    top, left = tf.floor(y), tf.floor(x)
    down, right = (y - top)[..., tf.newaxis], (x - left)[..., tf.newaxis]
    upper = (1.0 - right) * read(top, left) + right * read(top, left + 1.0)
    lower = (1.0 - right) * read(top + 1.0, left) + right * read(top + 1.0, left + 1.0)
    return (1.0 - down) * upper + down * lower
