"""Images: projective transforms, resizing with kernels that TFLite lacks, and colors.

As TensorFlow defines it, the gradient of a projective transform is the transform of the gradient by the inverse
matrix. Resizing is Y = R X S^T with constant matrices R for the rows and S for the columns; the gradient is R^T dY S.
"""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from odt_sim.export.lowering.ops.creation import known, reshaped
from odt_sim.export.lowering.registry import Memo, Value, computes, lowers


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
    numbers = [tf.range(size, dtype=tf.float32) for size in (height, width)]
    grid_y, grid_x = (reshaped(grid, [1, -1]) for grid in tf.meshgrid(*numbers, indexing="ij"))
    a = tf.split(tf.cast(transforms, tf.float32), 8, axis=1)
    k = a[6] * grid_x + a[7] * grid_y + 1.0
    infinite = tf.equal(k, 0.0)
    k = tf.where(infinite, tf.ones_like(k), k)
    return (a[0] * grid_x + a[1] * grid_y + a[2]) / k, (a[3] * grid_x + a[4] * grid_y + a[5]) / k, infinite


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


@lowers("ResizeBicubic", "ResizeArea", "ScaleAndTranslate")
def resize(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = R X S^T with the matrices of an interpolation, of means over areas, or of a scaling kernel."""
    return [_applied(inputs[0], _matrices(op, inputs, inputs[0], op.outputs[0]))]


@lowers("ResizeBicubicGrad", "ScaleAndTranslateGrad")
def resize_grad(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute dX = R^T dY S with the matrices of an interpolation or of a scaling kernel."""
    matrices = _matrices(op, inputs, op.outputs[0], inputs[0])
    return [_applied(inputs[0], [tf.transpose(matrix) for matrix in matrices])]


SETTINGS = {
    "ResizeBicubic": ("align_corners", "half_pixel_centers"),
    "ResizeArea": ("align_corners",),
    "ScaleAndTranslate": ("kernel_type", "antialias"),
}
"""The attributes of each op that resizes images."""


def _matrices(op: tf.Operation, inputs: list[Value], x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
    """Return the matrices of the rows and of the columns that resize `x` to the size of `y`."""
    kind = op.type.removesuffix("Grad")
    settings = {name: op.get_attr(name) for name in SETTINGS[kind]}
    matrices = []
    for axis in (0, 1):
        if kind == "ScaleAndTranslate":
            scale, translation = (float(known(value)[axis]) for value in inputs[2:])
            settings |= {"scale": [scale, 1.0], "translation": [translation, 0.0]}
        resize = partial(getattr(tf.raw_ops, kind), **settings)
        matrices.append(_matrix(resize, x.shape[1 + axis], y.shape[1 + axis]))
    return matrices


def _matrix(resize: Callable[..., tf.Tensor], size: int, new_size: int) -> tf.Tensor:
    """Return the matrix that resizes one axis, `[new_size, size]`: its columns are the images of the unit vectors."""
    with tf.init_scope():
        units = tf.reshape(tf.eye(size), [size, size, 1, 1])
        matrix = resize(images=units, size=[new_size, 1]).numpy().reshape(size, new_size)
    return tf.constant(matrix.T)


def _applied(x: tf.Tensor, matrices: list[tf.Tensor]) -> tf.Tensor:
    """Return R X S^T for each image and channel."""
    rows, columns = matrices
    _, height, width, channels = x.shape
    x = tf.cast(x, tf.float32)
    upright = tf.matmul(rows[tf.newaxis], reshaped(x, [-1, height, width * channels]))
    across = tf.matmul(columns[tf.newaxis], reshaped(upright, [-1, width, channels]))
    return reshaped(across, [-1, rows.shape[0], columns.shape[0], channels])


@computes("RGBToHSV")
def rgb_to_hsv(x: tf.Tensor) -> tf.Tensor:
    """Compute V = max, S = (max - min) / max and H = the angle on the color circle, in turns; S and H are 0 for gray."""
    red, green, blue = tf.split(x, 3, -1)
    value = tf.reduce_max(x, -1, keepdims=True)
    span = value - tf.reduce_min(x, -1, keepdims=True)
    zero = tf.zeros_like(span)
    norm = 1.0 / (6.0 * tf.where(span > 0.0, span, tf.ones_like(span)))
    saturation = tf.where(value > 0.0, span / tf.where(value > 0.0, value, tf.ones_like(value)), zero)
    other = tf.where(tf.equal(green, value), (blue - red) * norm + 2.0 / 6.0, (red - green) * norm + 4.0 / 6.0)
    hue = tf.where(span > 0.0, tf.where(tf.equal(red, value), (green - blue) * norm, other), zero)
    return tf.concat([tf.where(hue < 0.0, hue + 1.0, hue), saturation, value], -1)


@computes("HSVToRGB")
def hsv_to_rgb(x: tf.Tensor) -> tf.Tensor:
    """Compute C = ((clip(channel of the pure hue, 0, 1) - 1) S + 1) V."""
    hue, saturation, value = tf.split(x, 3, -1)
    turn = hue * 6.0
    pure = tf.concat([tf.abs(turn - 3.0) - 1.0, 2.0 - tf.abs(turn - 2.0), 2.0 - tf.abs(turn - 4.0)], -1)
    return ((tf.clip_by_value(pure, 0.0, 1.0) - 1.0) * saturation + 1.0) * value
