"""Fourier transforms and spectrograms of ATen, and complex numbers, which the lowering computes as two real tensors."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.torch.registry import OPS, Refusal, computes, over_last

LONGEST_PRODUCT = 1024
"""The longest frame for which a spectrogram multiplies by constant matrices; these need 2 MB of the file."""


@computes("complex")
def complex_(real: tf.Tensor, imaginary: tf.Tensor) -> tf.Tensor:
    """Return `real + i imaginary`."""
    return tf.complex(real, imaginary)


@computes("view_as_complex")
def view_as_complex(x: tf.Tensor) -> tf.Tensor:
    """Return complex numbers, given the real and imaginary parts on the last axis."""
    return tf.complex(x[..., 0], x[..., 1])


@computes("view_as_real")
def view_as_real(x: tf.Tensor) -> tf.Tensor:
    """Return the real and imaginary parts on a new last axis."""
    return tf.stack([tf.math.real(x), tf.math.imag(x)], -1)


@computes("polar")
def polar(size: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
    """Return complex numbers, given absolute values and angles."""
    return tf.complex(size * tf.cos(angle), size * tf.sin(angle))


@computes("_conj", "_conj_physical")
def conjugate(x: tf.Tensor) -> tf.Tensor:
    """Return the complex conjugates."""
    return tf.math.conj(x)


OPS.update({"real": tf.math.real, "imag": tf.math.imag, "angle": tf.math.angle})
OPS.update(dict.fromkeys(["resolve_conj", "resolve_neg"], tf.identity))


def _fitted(x: tf.Tensor, length: int) -> tf.Tensor:
    """Return a tensor with its last axis cut or zero-padded to a length."""
    size = int(x.shape[-1])
    if size >= length:
        return x if size == length else x[..., :length]
    return tf.concat([x, tf.zeros([*x.shape[:-1], length - size], x.dtype)], -1)


def _along(x: tf.Tensor, transform: Callable[[tf.Tensor], tf.Tensor], axes: Sequence[int]) -> tf.Tensor:
    for axis in axes:
        x = over_last(transform, x, axis)
    return x


def _scaled(x: tf.Tensor, count: int, normalization: int, *, inverse: bool) -> tf.Tensor:
    """Divide a transform by 1, the root of the number of elements, or their number, for PyTorch's 0, 1 and 2.

    TensorFlow has divided an inverse transform by the number of elements.
    """
    power = inverse - normalization / 2
    return x * tf.cast(count**power, x.dtype) if power else x


@computes("_fft_c2c")
def transform_complex(x: tf.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> tf.Tensor:
    """Return the transform, or the inverse transform, of complex numbers along axes."""
    result = _along(x, tf.signal.fft if forward else tf.signal.ifft, dim)
    return _scaled(result, math.prod(x.shape[axis] for axis in dim), normalization, inverse=not forward)


@computes("_fft_r2c")
def transform_real(x: tf.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> tf.Tensor:
    """Return the transform of real numbers along axes; `onesided` keeps half of the last axis."""
    if not onesided:
        return transform_complex(tf.cast(x, tf.complex64), dim, normalization, True)
    *others, last = dim
    result = _along(over_last(tf.signal.rfft, x, last), tf.signal.fft, others)
    return _scaled(result, math.prod(x.shape[axis] for axis in dim), normalization, inverse=False)


@computes("_fft_c2r")
def transform_to_real(x: tf.Tensor, dim: Sequence[int], normalization: int, size: int) -> tf.Tensor:
    """Return the inverse transform along axes, given half of the last axis, which then has `size` real numbers."""
    *others, last = dim
    count = size * math.prod(x.shape[axis] for axis in others)
    result = over_last(lambda rows: tf.signal.irfft(rows, [size]), _along(x, tf.signal.ifft, others), last)
    return _scaled(result, count, normalization, inverse=True)


def _window(window: tf.Tensor | None, length: int | None, size: int) -> tf.Tensor:
    """Return a window, zero-padded on both sides to the length of a frame."""
    length = length or size
    window = tf.ones([length]) if window is None else window
    before = (size - length) // 2
    return tf.pad(window, [(before, size - length - before)])


def _frames(x: tf.Tensor, size: int, hop: int) -> tf.Tensor:
    """Return the frames, `[rows, frames, size]`, of signals `[rows, samples]`; frames consist of whole blocks."""
    block = math.gcd(size, hop)
    count, places = (int(x.shape[1]) - size) // hop + 1, int(x.shape[1]) // block
    at = np.arange(count)[:, None] * (hop // block) + np.arange(size // block)
    blocks = tf.reshape(x[:, : places * block], [x.shape[0], places, block])
    return tf.reshape(tf.gather(blocks, at.astype(np.int32), axis=1), [x.shape[0], count, size])


def _spectra(frames: tf.Tensor, size: int) -> tf.Tensor:
    """Return the first half of the spectra of real frames; short frames use matrix products, which are faster.

    With e[j] = x[j] + x[n - j] and o[j] = x[j] - x[n - j], the real parts are sums of e[j] cos(2 pi j k / n) over half
    of the samples, and the imaginary parts are sums of -o[j] sin(2 pi j k / n).
    """
    if size > LONGEST_PRODUCT:
        return tf.signal.rfft(frames)
    pairs, half = (size - 1) // 2, size // 2 + 1
    angles = 2 * np.pi / size * (np.outer(np.arange(half), np.arange(half)) % size)
    low, high = frames[..., 1 : pairs + 1], tf.reverse(frames[..., size - pairs :], [-1])
    even = tf.concat([frames[..., :1], low + high, frames[..., pairs + 1 : size - pairs]], -1)
    real = tf.matmul(even, tf.constant(np.cos(angles), tf.float32))
    return tf.complex(real, tf.matmul(low - high, tf.constant(-np.sin(angles[1 : pairs + 1]), tf.float32)))


@computes("stft")
def stft(
    x: tf.Tensor,
    size: int,
    hop: int | None = None,
    window_length: int | None = None,
    window: tf.Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    *_: Any,
) -> tf.Tensor:
    """Return the spectrograms, `[rows, frequencies, frames]`, of signals `[rows, samples]`."""
    rows = x if len(x.shape) == 2 else x[None]
    if rows.dtype != tf.float32:
        raise Refusal("takes complex signals; pass their real and imaginary parts")
    frames = _frames(rows, size, hop or size // 4) * _window(window, window_length, size)
    result = tf.signal.fft(tf.cast(frames, tf.complex64)) if onesided is False else _spectra(frames, size)
    result = tf.transpose(result * tf.cast(size**-0.5, result.dtype) if normalized else result, [0, 2, 1])
    result = result if len(x.shape) == 2 else result[0]
    return view_as_real(result) if return_complex is False else result


@computes("istft")
def istft(
    x: tf.Tensor,
    size: int,
    hop: int | None = None,
    window_length: int | None = None,
    window: tf.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> tf.Tensor:
    """Return the signals, `[rows, samples]`, of spectrograms `[rows, frequencies, frames]`, by overlap-add."""
    rows = x if len(x.shape) == 3 else x[None]
    if return_complex:
        raise Refusal("returns complex signals; use return_complex=False")
    hop, window = hop or size // 4, _window(window, window_length, size)
    spectra = tf.transpose(rows, [0, 2, 1])
    frames = tf.math.real(tf.signal.ifft(spectra)) if onesided is False else tf.signal.irfft(spectra, [size])
    frames = (frames * float(size**0.5) if normalized else frames) * window
    weights = tf.broadcast_to(tf.square(window), [1, *frames.shape[1:]])
    start = size // 2 if center else 0
    end = start + length if length else size + hop * (int(frames.shape[1]) - 1) - start
    summed, weights = (_fitted(_overlapped(part, hop), end)[:, start:] for part in (frames, weights))
    result = summed / tf.where(weights > 1e-11, weights, 1.0)
    return result if len(x.shape) == 3 else result[0]


def _overlapped(frames: tf.Tensor, hop: int) -> tf.Tensor:
    """Return the overlapping sums, `[rows, samples]`, of frames that begin every `hop` samples."""
    rows, count, size = frames.shape
    parts = -(-size // hop)
    whole = tf.pad(frames, [(0, 0), (0, 0), (0, parts * hop - size)])
    shifted = [tf.pad(whole[:, :, i * hop : (i + 1) * hop], [(0, 0), (i, parts - 1 - i), (0, 0)]) for i in range(parts)]
    return tf.reshape(tf.add_n(shifted), [rows, (count + parts - 1) * hop])
