"""ATen ops that resize and sample images, or rearrange their windows as columns."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.torch.convolution import first, last
from odt_sim.export.torch.registry import OPS, Refusal, computes, over_last, pair


def resized(
    x: tf.Tensor, method: str, size: Any, scales: Any, *, aligned: bool | None = None, antialias: bool = False
) -> tf.Tensor:
    """Return resized images, `[batch, channels, ...]`.

    Args:
        x: The images, with one to three spatial axes.
        method: PyTorch's name of the interpolation, such as `bilinear`.
        size: The new size of each spatial axis, or None.
        scales: The factor of each spatial axis; it takes precedence over `size`.
        aligned: Whether the corners stay in place; None for methods without this setting.
        antialias: Whether to average when an image becomes smaller.
    """
    old = x.shape.as_list()[2:]
    new = [int(n * s) for n, s in zip(old, scales, strict=True)] if scales else list(size)
    scales = scales or [None] * len(new)
    whole = all(m % n == 0 and s in (None, m / n) for n, m, s in zip(old, new, scales, strict=True))
    if len(old) == 2 and not antialias and (method == "nearest" or (method, aligned) == ("bilinear", False)) and whole:
        return first(tf.image.resize(last(x), new, method))
    for axis, (n, m, scale) in enumerate(zip(old, new, scales, strict=True), 2):
        if n != m:
            x = _on_axis(x, axis, _shares(n, m, scale, method, aligned, antialias))
    return x


def _on_axis(x: tf.Tensor, axis: int, matrix: NDArray[np.float32]) -> tf.Tensor:
    """Multiply one axis by a matrix `[old, new]`."""
    return over_last(lambda rows: tf.matmul(rows, tf.constant(matrix, x.dtype)), x, axis)


def _shares(old: int, new: int, scale: float | None, method: str, aligned: Any, antialias: bool) -> NDArray[np.float32]:
    """Return the shares of each row in the new rows, `[old, new]`, from PyTorch's resizing of an identity matrix."""
    import torch

    wanted = {"size": (new, old)} if scale is None else {"scale_factor": (scale, 1.0)}
    settings = {"mode": method, "align_corners": aligned, "antialias": antialias, **wanted}
    shares: NDArray[np.float32] = torch.nn.functional.interpolate(torch.eye(old)[None, None], **settings)[0, 0].numpy()
    return shares.T


def _nearest(method: str) -> Callable[..., tf.Tensor]:
    return lambda x, size, scales=None, *_: resized(x, method, size, scales)


def _smooth(method: str, *, antialias: bool = False) -> Callable[..., tf.Tensor]:
    return lambda x, size, aligned, scales=None, *_: resized(
        x, method, size, scales, aligned=aligned, antialias=antialias
    )


OPS.update({f"upsample_nearest{d}d": _nearest("nearest") for d in (1, 2, 3)})
OPS.update({f"_upsample_nearest_exact{d}d": _nearest("nearest-exact") for d in (1, 2, 3)})
OPS.update(dict.fromkeys(["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"], _smooth("bilinear")))
OPS["upsample_bicubic2d"] = _smooth("bicubic")
OPS["_upsample_bilinear2d_aa"] = _smooth("bilinear", antialias=True)
OPS["_upsample_bicubic2d_aa"] = _smooth("bicubic", antialias=True)


@computes("grid_sampler_2d")
def grid_sample(x: tf.Tensor, grid: tf.Tensor, method: int, padding: int, aligned: bool) -> tf.Tensor:
    """Return images sampled at positions `[batch, height, width, 2]` in -1 to 1 (arXiv:1506.02025)."""
    if len(x.shape) != 4 or method == 2 or padding == 2:
        raise Refusal("samples volumes, or with bicubic interpolation or reflection; use bilinear sampling of images")
    batch, channels, height, width = x.shape
    flat = tf.reshape(last(x), [batch, height * width, channels])
    places = [_place(grid[..., i], n, padding, aligned) for i, n in ((1, height), (0, width))]
    if method == 1:
        corners = [[(tf.round(place), tf.ones_like(place))] for place in places]
    else:
        corners = [[(tf.floor(p), 1 - (p - tf.floor(p))), (tf.floor(p) + 1, p - tf.floor(p))] for p in places]
    parts = []
    for row, row_share in corners[0]:
        for column, column_share in corners[1]:
            inside = (row >= 0) & (row <= height - 1) & (column >= 0) & (column <= width - 1)
            at = tf.clip_by_value(row, 0, height - 1) * width + tf.clip_by_value(column, 0, width - 1)
            taken = tf.gather(flat, tf.cast(tf.reshape(at, [batch, -1]), tf.int32), axis=1, batch_dims=1)
            share = row_share * column_share * tf.cast(inside, x.dtype)
            parts.append(taken * tf.reshape(share, [batch, -1, 1]))
    return first(tf.reshape(tf.add_n(parts), [batch, *grid.shape[1:3], channels]))


def _place(x: tf.Tensor, count: int, padding: int, aligned: bool) -> tf.Tensor:
    """Return positions in -1 to 1 as row coordinates; border padding clips them to the image."""
    # Round exactly as PyTorch: the identity samples at whole coordinates, where the gradient jumps.
    place = (x + 1) * ((count - 1) / 2) if aligned else (x + 1) * (count / 2) - 0.5
    return tf.clip_by_value(place, 0, count - 1) if padding == 1 else place


@computes("im2col")
def im2col(x: tf.Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> tf.Tensor:
    """Return the windows of images as columns, `[batch, channels x positions in a window, windows]`."""
    batch, channels = x.shape[:2]
    kernel, dilation, padding, stride = (pair(each, 2) for each in (kernel, dilation, padding, stride))
    x = tf.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)]) if any(padding) else x
    counts = [_windows(n, k, d, s) for n, k, d, s in zip(x.shape[2:], kernel, dilation, stride, strict=True)]
    ranges = [
        [slice(i * d, i * d + (count - 1) * s + 1, s) for i in range(k)]
        for k, d, s, count in zip(kernel, dilation, stride, counts, strict=True)
    ]
    parts = [x[:, :, rows, columns] for rows in ranges[0] for columns in ranges[1]]
    return tf.reshape(tf.stack(parts, 2), [batch, channels * len(parts), counts[0] * counts[1]])


@computes("col2im")
def col2im(x: tf.Tensor, size: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any) -> tf.Tensor:
    """Return images as sums of overlapping windows: along each axis, a product with a matrix of zeros and ones."""
    kernel, dilation, padding, stride = (pair(each, 2) for each in (kernel, dilation, padding, stride))
    settings = list(zip(size, kernel, dilation, padding, stride, strict=True))
    counts = [_windows(n + 2 * p, k, d, s) for n, k, d, p, s in settings]
    channels = x.shape[1] // (kernel[0] * kernel[1])
    parts = tf.reshape(x, [x.shape[0], channels, *kernel, *counts])
    parts = tf.transpose(parts, [0, 1, 2, 4, 3, 5])
    image = tf.reshape(parts, [x.shape[0], channels, kernel[0] * counts[0], kernel[1] * counts[1]])
    for axis, (given, count) in enumerate(zip(settings, counts, strict=True), 2):
        image = _on_axis(image, axis, _places(*given, count))
    return image


def _windows(size: int, kernel: int, dilation: int, stride: int) -> int:
    """Return the number of windows along an axis."""
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def _places(size: int, kernel: int, dilation: int, padding: int, stride: int, count: int) -> NDArray[np.float32]:
    """Return the image position of each position in each window of an axis, as ones in `[kernel x windows, size]`."""
    at = (np.arange(kernel)[:, None] * dilation + np.arange(count) * stride - padding).reshape(-1)
    return np.asarray(at[:, None] == np.arange(size), np.float32)
