"""Discrete Fourier transforms as matrix products: X[k] = the sum of x[j] e^(-2 pi i j k / n), and the inverse.

A length n = a b above `LARGEST` is transformed in two steps of lengths a and b, which takes n (a + b) products instead
of n^2: J. Cooley and J. Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965.
"""

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.layout.open_batch import OPEN
from odt_sim.export.lowering.ops.complex_numbers import Complex, constant, of_real, on_complex
from odt_sim.export.lowering.ops.creation import known, reshaped
from odt_sim.export.lowering.registry import Refusal, Value, tensor_of

LARGEST = 128


def _roots(rows: int, columns: int, size: int) -> NDArray[np.complex128]:
    """Return e^(-2 pi i j k / size) for the rows j and columns k."""
    exponents = np.outer(np.arange(rows), np.arange(columns)) % size
    return np.asarray(np.exp(-2j * np.pi * exponents / size))


def _sizes(x: Complex) -> list[int]:
    return [OPEN if size is None else int(size) for size in x.real.shape]


def _reshaped(x: Complex, shape: list[int]) -> Complex:
    return Complex(reshaped(x.real, shape), reshaped(x.imaginary, shape))


def _transposed(x: Complex) -> Complex:
    return Complex(tf.linalg.matrix_transpose(x.real), tf.linalg.matrix_transpose(x.imaginary))


def transformed(x: Complex) -> Complex:
    """Return the transform along the last axis."""
    *others, size = _sizes(x)
    flat = _steps(_reshaped(x, [OPEN, size]), size)
    return _reshaped(flat, [*others, size])


def _steps(x: Complex, size: int) -> Complex:
    """Return the transform of rows, `[rows, size]`."""
    first = next((n for n in range(int(size**0.5), 1, -1) if size % n == 0), 1)
    if size <= LARGEST or first == 1:
        return _times(x, _roots(size, size, size))
    second = size // first
    # With j = second j1 + j2 and k = k1 + first k2: transform over j1, multiply by the roots of j2 k1, transform over j2.
    inner = _transposed(_reshaped(x, [OPEN, first, second]))
    inner = _reshaped(_steps(_reshaped(inner, [OPEN, first]), first), [OPEN, second, first])
    inner = inner * constant(_roots(second, first, size))
    outer = _reshaped(_transposed(inner), [OPEN, second])
    outer = _reshaped(_steps(outer, second), [OPEN, first, second])
    return _reshaped(_transposed(outer), [OPEN, size])


def _times(x: Complex, matrix: NDArray[np.complex128]) -> Complex:
    """Return the products of rows with a complex matrix, by one product of real matrices."""
    size = matrix.shape[1]
    real, imaginary = matrix.real, matrix.imag
    joined = np.block([[real, imaginary], [-imaginary, real]]).astype(np.float32)
    both = tf.concat([x.real, x.imaginary], -1)
    product = tf.matmul(tf.expand_dims(both, 0), tf.constant(joined[np.newaxis]))[0]
    return Complex(product[:, :size], product[:, size:])


def _swapped(x: Complex, axis: int) -> Complex:
    """Return a tensor with one axis and the last axis exchanged."""
    rank = len(x.real.shape)
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return x if order == sorted(order) else Complex(tf.transpose(x.real, order), tf.transpose(x.imaginary, order))


def _along(x: Complex, axes: int) -> Complex:
    """Return the transform along the last axes."""
    for axis in range(-axes, 0):
        x = _swapped(transformed(_swapped(x, axis)), axis)
    return x


def _inverse(x: Complex, axes: int) -> Complex:
    """Return the inverse transform along the last axes: conj(transform(conj(x))) divided by the number of elements."""
    count = float(np.prod(x.real.shape[len(x.real.shape) - axes :]))
    back = _along(x.conjugate, axes)
    return Complex(back.real * (1.0 / count), back.imaginary * (-1.0 / count))


def _axes(op: tf.Operation) -> int:
    """Return the number of axes that an op transforms: 2 for `FFT2D`, for example, or 1 without a number."""
    return int(op.type[-2]) if op.type.endswith("D") else 1


@on_complex("FFT", "FFT2D", "FFT3D")
def fft(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute the transform."""
    return _along(inputs[0], _axes(op))


@on_complex("IFFT", "IFFT2D", "IFFT3D")
def ifft(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute the inverse transform."""
    return _inverse(inputs[0], _axes(op))


@on_complex("RFFT", "RFFT2D", "RFFT3D")
def rfft(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute the first half of the transform of real numbers, which are cut or zero-padded to the lengths."""
    lengths = _lengths(inputs[1])
    x = of_real(_fitted(tensor_of(inputs[0]), lengths))
    whole = _along(x, len(lengths))
    half = lengths[-1] // 2 + 1
    return Complex(whole.real[..., :half], whole.imaginary[..., :half])


@on_complex("IRFFT", "IRFFT2D", "IRFFT3D")
def irfft(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute the inverse transform of the first half of a transform of real numbers."""
    lengths = _lengths(inputs[1])
    half = lengths[-1] // 2 + 1
    fitted = [*lengths[:-1], half]
    x = Complex(_fitted(inputs[0].real, fitted), _fitted(inputs[0].imaginary, fitted))
    # The other half is the conjugate of this one, so the real parts of weighted rows suffice along the last axis.
    for axis in range(-len(lengths), -1):
        x = _swapped(_inverse(_swapped(x, axis), 1), axis)
    last = lengths[-1]
    weights = np.array([1.0 if k == 0 or 2 * k == last else 2.0 for k in range(half)])[:, np.newaxis] / last
    roots = weights * np.conj(_roots(half, last, last))
    *others, _ = _sizes(x)
    joined = np.concatenate([roots.real, -roots.imag]).astype(np.float32)
    both = reshaped(tf.concat([x.real, x.imaginary], -1), [1, OPEN, 2 * half])
    return reshaped(tf.matmul(both, tf.constant(joined[np.newaxis])), [*others, last])


def _lengths(tensor: Value) -> list[int]:
    return [int(n) for n in known(tensor_of(tensor)).reshape(-1)]


def _fitted(x: tf.Tensor, lengths: list[int]) -> tf.Tensor:
    """Return a tensor with its last axes cut or zero-padded to given lengths."""
    for axis, length in zip(range(-len(lengths), 0), lengths, strict=True):
        size = x.shape[axis]
        if size is None:
            raise Refusal("transforms an axis of variable length; give the model a fixed shape")
        if size > length:
            x = tf.split(x, [length, size - length], axis)[0]
        elif size < length:
            pads = [[0, 0]] * len(x.shape)
            pads[axis] = [0, length - size]
            x = tf.pad(x, pads)
    return x
