"""The sliding windows of a convolution or a pooling as slices, and the adjoint operation."""

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby

import tensorflow as tf

from odt_sim.export.lowering.ops.creation import integers, reshaped
from odt_sim.export.lowering.registry import Refusal

ALL = slice(None)


@dataclass(frozen=True)
class Windows:
    """The layout of windows on an image, for height and width.

    Attributes:
        size: The window's size.
        stride: The distance between two windows.
        dilation: The distance between two elements of a window.
        image: The size of the image.
        count: The number of windows.
        before: The padding above and to the left.
        after: The padding below and to the right; negative if no window covers the last rows or columns.
    """

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    image: tuple[int, int]
    count: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The positions of a window's elements, row by row."""
        height, width = self.size
        return [(i * self.dilation[0], j * self.dilation[1]) for i in range(height) for j in range(width)]

    @property
    def tiles(self) -> bool:
        """Whether the windows neither overlap, nor leave gaps, nor reach over the image's edge."""
        return self.stride == self.size and self.dilation == (1, 1) and self.before == (0, 0) and max(self.after) <= 0

    @property
    def splits(self) -> bool:
        """Whether the windows tile the image and are square or one row high: a reshape puts their elements in one axis."""
        return self.tiles and self.size[1] > 1 and self.size[0] in (1, self.size[1])

    def first(self, rows: int, columns: int) -> "Windows":
        """Return the first `rows` and `columns` of these windows."""
        (height, width), (down, right) = self.count, self.stride
        after = (self.after[0] - (height - rows) * down, self.after[1] - (width - columns) * right)
        return replace(self, count=(rows, columns), after=after)


def windows_of(op: tf.Operation, image: tf.TensorShape, size: tuple[int, int]) -> Windows:
    """Return the windows of an op of the Conv2D and pooling families."""
    if op.get_attr("data_format") != b"NHWC":
        raise Refusal('supports only data_format="channels_last"; use that')
    padding = op.get_attr("padding")
    if padding not in (b"SAME", b"VALID"):
        raise Refusal('supports only padding "same" and "valid"; put a ZeroPadding2D layer before it')
    strides = op.get_attr("strides")[1:3]
    dilations = op.get_attr("dilations")[1:3] if "dilations" in op.node_def.attr else [1, 1]
    axes = [[int(own[a]) for own in (image[1:3], size, strides, dilations)] for a in (0, 1)]
    return windows_along(axes, same=padding == b"SAME")


def kernel_windows(op: tf.Operation, image: tf.TensorShape, kernel: tf.TensorShape) -> Windows:
    """Return the windows of a convolution's kernel, `[height, width, ...]`."""
    return windows_of(op, image, (int(kernel[0]), int(kernel[1])))


def windows_along(axes: list[list[int]], *, same: bool) -> Windows:
    """Return windows from image size, window size, stride and dilation for each of two axes."""
    (rows, top, bottom), (columns, left, right) = (_axis(axis[0], axis[1], axis[2], axis[3], same) for axis in axes)
    image, size, stride, dilation = zip(*axes, strict=True)
    return Windows(size, stride, dilation, image, (rows, columns), (top, left), (bottom, right))


def _axis(image: int, size: int, stride: int, dilation: int, same: bool) -> tuple[int, int, int]:
    """Return the number of windows along an axis and the padding before and after, as in TensorFlow."""
    extent = (size - 1) * dilation + 1
    count = -(-image // stride) if same else (image - extent) // stride + 1
    total = (count - 1) * stride + extent - image
    before = total // 2 if same and total > 0 else 0
    return count, before, total - before


def padded_by(x: tf.Tensor, before: tuple[int, int], size: tuple[int, int], value: float = 0.0) -> tf.Tensor:
    """Return an image with rows and columns of `value` before it, cropped or padded to a size.

    Args:
        x: `[batch, height, width, channels]`.
        before: The rows above and the columns to the left.
        size: Rows and columns of the result.
        value: The padding.
    """
    (top, left), (height, width), channels = before, size, x.shape[3]
    x = part(x, slice(min(x.shape[1], height - top)), slice(min(x.shape[2], width - left)))
    below, right = height - top - x.shape[1], width - left - x.shape[2]
    if (top, left, below, right) == (0, 0, 0, 0):
        return x
    # With columns and channels in one axis, padding copies rows, not pixels.
    flat = reshaped(x, [-1, x.shape[1], x.shape[2] * channels])
    flat = tf.pad(flat, [[0, 0], [top, below], [left * channels, right * channels]], constant_values=value)
    return reshaped(flat, [-1, height, width, channels])


def padded(x: tf.Tensor, windows: Windows, value: float = 0.0) -> tf.Tensor:
    """Return `x` with its edges padded by `value`, without the rows and columns outside all windows."""
    size = [n + b + a for n, b, a in zip(windows.image, windows.before, windows.after, strict=True)]
    return padded_by(x, windows.before, (size[0], size[1]), value)


def part(x: tf.Tensor, rows: slice = ALL, columns: slice = ALL) -> tf.Tensor:
    """Return some rows and columns of an image; the image itself, without a copy, if these are all."""
    ranges = [range(*own.indices(size)) for own, size in zip((rows, columns), x.shape[1:3], strict=True)]
    if [len(own) for own in ranges] == x.shape[1:3]:
        return x
    return cut(x, *ranges, range(x.shape[3]))


def cut(x: tf.Tensor, *ranges: range) -> tf.Tensor:
    """Return a range of each axis after the first; the tensor itself, without a copy, if these are all."""
    if [len(own) for own in ranges] == x.shape[1:]:
        return x
    begin, end, step = ([getattr(own, name) for own in ranges] for name in ("start", "stop", "step"))
    return tf.strided_slice(
        x, integers([0, *begin]), integers([0, *end]), integers([1, *step]), begin_mask=1, end_mask=1
    )


def elements(x: tf.Tensor, windows: Windows) -> Iterator[tf.Tensor]:
    """Yield element `offset` of every window of a padded image, for each of `windows.offsets`.

    Each is `[batch, count, count, channels]`. LiteRT runs ops in the order of their creation, so an element that is used
    before the next one is yielded takes memory only until then.
    """
    (rows, columns), (down, right) = windows.count, windows.stride
    if (down, right) == (1, 1):
        yield from (part(x, slice(i, i + rows), slice(j, j + columns)) for i, j in windows.offsets)
        return
    for row, group in groupby(windows.offsets, key=lambda offset: offset[0]):
        lines = _every_row(x, row, rows, down)
        for _, column in group:
            yield _every_column(lines, column, columns, right)


def _every_row(x: tf.Tensor, start: int, count: int, step: int) -> tf.Tensor:
    """Return `count` rows from `start`, `step` apart, by a reshape: a strided slice is slow."""
    if step == 1:
        return part(x, rows=slice(start, start + count))
    _, height, width, channels = x.shape
    first, kept = _first(start, count, step, height)
    x = padded_by(x, (0, 0), (max(height, first + count * step), width))
    lines = reshaped(part(x, slice(first, first + count * step)), [-1, count, step, width * channels])
    return reshaped(lines[:, :, kept : kept + 1], [-1, count, width, channels])


def _every_column(x: tf.Tensor, start: int, count: int, step: int) -> tf.Tensor:
    """Return `count` columns from `start`, `step` apart, as in `_every_row`."""
    if step == 1:
        return part(x, columns=slice(start, start + count))
    _, height, width, channels = x.shape
    first, kept = _first(start, count, step, width)
    x = padded_by(x, (0, 0), (height, max(width, first + count * step)))
    blocks = reshaped(part(x, ALL, slice(first, first + count * step)), [-1, height, count, step * channels])
    return blocks[..., kept * channels : (kept + 1) * channels]


def _first(start: int, count: int, step: int, size: int) -> tuple[int, int]:
    """Return the start of blocks of `step` neighbours, inside the image if possible, and the wanted member of each."""
    kept = min(max(start + count * step - size, 0), start)
    return start - kept, kept


def split(x: tf.Tensor, windows: Windows) -> list[tf.Tensor]:
    """Return element `offset` of every window, for each of `windows.offsets`, if the windows `split` the image.

    Each is `[batch, count, count, channels]`.
    """
    (height, width), (rows, columns) = windows.size, windows.count
    x = part(x, slice(rows * height), slice(columns * width))
    deep = tf.nn.space_to_depth(x, width) if height > 1 else reshaped(x, [-1, rows, columns, width * x.shape[3]])
    return list(tf.split(deep, height * width, -1))


def assembled(parts: list[tf.Tensor], windows: Windows) -> tf.Tensor:
    """Return the image with these elements, zero outside the windows."""
    (height, width), (rows, columns) = windows.size, windows.count
    deep = tf.concat(parts, -1)
    shape = [-1, rows, columns * width, parts[0].shape[3]]
    return padded_by(tf.nn.depth_to_space(deep, width) if height > 1 else reshaped(deep, shape), (0, 0), windows.image)


def scattered(parts: list[tf.Tensor], windows: Windows) -> tf.Tensor:
    """Add up the windows' elements at their positions in the image: the adjoint of `elements`.

    Returns:
        `[batch, height, width, channels]`.
    """
    total = sum_of([_placed(x, windows, offset) for x, offset in zip(parts, windows.offsets, strict=True)])
    (top, left), (bottom, right), (height, width) = windows.before, windows.after, windows.image
    total = part(total, slice(top, top + height), slice(left, left + width))
    missing = [[0, 0], [0, max(-bottom, 0)], [0, max(-right, 0)], [0, 0]]
    return tf.pad(total, missing) if any(map(any, missing)) else total


def _placed(x: tf.Tensor, windows: Windows, offset: tuple[int, int]) -> tf.Tensor:
    """Return one element of every window at its position in an image of zeros with the padded size."""
    (row, column), (rows, columns), (down, right) = offset, windows.count, windows.stride
    spread = dilated(x, down, right)
    height = (rows - 1) * down + (windows.size[0] - 1) * windows.dilation[0] + 1
    width = (columns - 1) * right + (windows.size[1] - 1) * windows.dilation[1] + 1
    spread_height, spread_width = (rows - 1) * down + 1, (columns - 1) * right + 1
    return tf.pad(
        spread, [[0, 0], [row, height - row - spread_height], [column, width - column - spread_width], [0, 0]]
    )


def dilated(x: tf.Tensor, down: int, right: int) -> tf.Tensor:
    """Return `x` with `down - 1` rows and `right - 1` columns of zeros between its rows and columns."""
    if (down, right) == (1, 1):
        return x
    _, height, width, channels = x.shape
    # Widening the following axes appends zeros to each row and column; the last ones are cut off.
    x = tf.pad(reshaped(x, [-1, width, channels]), [[0, 0], [0, 0], [0, (right - 1) * channels]])
    row = width * right * channels
    x = tf.pad(reshaped(x, [-1, height, row]), [[0, 0], [0, 0], [0, (down - 1) * row]])
    x = reshaped(x, [-1, height * down, width * right, channels])
    return part(x, slice((height - 1) * down + 1), slice((width - 1) * right + 1))


def sum_of(parts: Iterable[tf.Tensor]) -> tf.Tensor:
    """Return the sum of tensors of one shape, added one by one: ADD is faster than ADD_N."""
    return reduce(operator.add, parts)
