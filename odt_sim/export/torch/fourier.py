"""Fourier transforms and spectrograms of ATen, and complex numbers, which the lowering computes as two real tensors."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from odt_sim.export.torch.registry import OPS, Refusal, axes_of, computes, over_last

LONGEST_PRODUCT = 1024
"""The longest frame for which a spectrogram multiplies by constant matrices; these need 2 MB of the file."""

Transform = Callable[[tf.Tensor, int], tf.Tensor]
"""A transform of a tensor's last axis, cut or padded to a given length."""


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


@computes("_conj", "conj", "conj_physical", "_conj_physical")
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


def _as_complex(x: tf.Tensor) -> tf.Tensor:
    return x if x.dtype == tf.complex64 else tf.cast(x, tf.complex64)


def _fft(x: tf.Tensor, length: int) -> tf.Tensor:
    return tf.signal.fft(_fitted(_as_complex(x), length))


def _ifft(x: tf.Tensor, length: int) -> tf.Tensor:
    return tf.signal.ifft(_fitted(_as_complex(x), length))


def _rfft(x: tf.Tensor, length: int) -> tf.Tensor:
    return tf.signal.rfft(_fitted(x, length), [length])


def _irfft(x: tf.Tensor, length: int) -> tf.Tensor:
    return tf.signal.irfft(_fitted(_as_complex(x), length // 2 + 1), [length])


_POWERS = {(None, False): 0.0, (None, True): 0.0, ("backward", False): 0.0, ("backward", True): 0.0,
           ("ortho", False): -0.5, ("ortho", True): 0.5, ("forward", False): -1.0, ("forward", True): 1.0}  # fmt: skip
"""The power of the length by which TensorFlow's transform is scaled, by PyTorch's `norm` and whether it is an inverse."""


def _along(x: tf.Tensor, transform: Transform, axis: int, length: int, norm: str | None) -> tf.Tensor:
    def scaled(rows: tf.Tensor) -> tf.Tensor:
        result = transform(rows, length)
        power = _POWERS[norm, transform in (_ifft, _irfft)]
        return result * tf.cast(length**power, result.dtype) if power else result

    return over_last(scaled, x, axis)


def _one_axis(transform: Transform) -> Callable[..., tf.Tensor]:
    def computed(x: tf.Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> tf.Tensor:
        axis = dim % len(x.shape)
        return _along(x, transform, axis, n or _length(x, axis, half=transform is _irfft), norm)

    return computed


def _length(x: tf.Tensor, axis: int, *, half: bool) -> int:
    return 2 * (int(x.shape[axis]) - 1) if half else int(x.shape[axis])


def _several_axes(on_last: Transform, on_others: Transform, default: Sequence[int] | None) -> Callable[..., tf.Tensor]:
    """Return a transform along several axes; transforms of real numbers keep half of the last axis."""

    def computed(x: tf.Tensor, s: Any = None, dim: Any = default, norm: str | None = None) -> tf.Tensor:
        axes = axes_of(dim, len(x.shape)) if s is None or dim is not None else list(range(len(x.shape)))[-len(s) :]
        sizes = [_length(x, a, half=on_last is _irfft and a == axes[-1]) for a in axes] if s is None else list(s)
        parts = [(a, n, on_last if a == axes[-1] else on_others) for a, n in zip(axes, sizes, strict=True)]
        for axis, length, transform in parts if on_last is _irfft else parts[::-1]:
            x = _along(x, transform, axis, length, norm)
        return x

    return computed


_PAIRS = {"fft": (_fft, _fft), "ifft": (_ifft, _ifft), "rfft": (_rfft, _fft), "irfft": (_irfft, _ifft)}
for _name, _pair in _PAIRS.items():
    OPS[f"fft_{_name}"] = _one_axis(_pair[0])
    OPS[f"fft_{_name}2"] = _several_axes(*_pair, (-2, -1))
    OPS[f"fft_{_name}n"] = _several_axes(*_pair, None)


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
    result = _fft(frames, size) if onesided is False else _spectra(frames, size)
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
    frames = tf.math.real(_ifft(spectra, size)) if onesided is False else _irfft(spectra, size)
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
