"""Complex numbers as two tensors, real and imaginary parts, because TFLite has few kernels for complex tensors."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.registry import Deferred, Refusal, Value, tensor_of


@dataclass(frozen=True)
class Complex(Deferred):
    """A complex tensor.

    Attributes:
        real: The real parts.
        imaginary: The imaginary parts, of the same shape.
    """

    real: tf.Tensor
    imaginary: tf.Tensor

    def tensor(self) -> tf.Tensor:
        """Refuse, because only ops with a function in this module support complex numbers."""
        raise Refusal("takes complex numbers, which have no kernel; extract the real and imaginary parts with "
                      "keras.ops.real and keras.ops.imag")  # fmt: skip

    @property
    def conjugate(self) -> "Complex":
        """The complex conjugates."""
        return Complex(self.real, -self.imaginary)

    def __add__(self, other: "Complex") -> "Complex":
        return Complex(self.real + other.real, self.imaginary + other.imaginary)

    def __sub__(self, other: "Complex") -> "Complex":
        return Complex(self.real - other.real, self.imaginary - other.imaginary)

    def __mul__(self, other: "Complex") -> "Complex":
        return Complex(
            self.real * other.real - self.imaginary * other.imaginary,
            self.real * other.imaginary + self.imaginary * other.real,
        )

    def __truediv__(self, other: "Complex") -> "Complex":
        scale = tf.square(other.real) + tf.square(other.imaginary)
        product = self * other.conjugate
        return Complex(product.real / scale, product.imaginary / scale)


ComplexLowering = Callable[[tf.Operation, list[Value]], Value]
"""A function from a traced op and its inputs, some of them `Complex`, to its only output."""

COMPLEX: dict[str, ComplexLowering] = {}


def on_complex(*op_types: str) -> Callable[[ComplexLowering], ComplexLowering]:
    """Register a function as the lowering of op types that take or return complex numbers."""

    def register(function: ComplexLowering) -> ComplexLowering:
        COMPLEX.update(dict.fromkeys(op_types, function))
        return function

    return register


LINEAR = frozenset(
    """
    Reshape ExpandDims Squeeze Transpose StridedSlice StridedSliceGrad Slice Split SplitV ConcatV2 Pack Unpack Pad PadV2
    Identity StopGradient Sum Mean Neg Tile BroadcastTo GatherV2 ReverseV2 AddN ZerosLike Roll UnsortedSegmentSum
    MatrixDiagV3 MatrixDiagPartV3 Select SelectV2
    """.split()  # noqa: SIM905
)
"""Op types that apply equally and separately to real and imaginary parts."""


def is_complex(op: tf.Operation, inputs: list[Value]) -> bool:
    """Return whether an op takes or returns complex numbers."""
    return any(isinstance(value, Complex) for value in inputs) or any(t.dtype == tf.complex64 for t in op.outputs)


def complex_values(op: tf.Operation, inputs: list[Value], apply: Callable[[list[Value]], list[Value]]) -> list[Value]:
    """Return the outputs of an op on complex numbers; `apply` emits the op on real numbers."""
    if op.type == "Const":
        return [constant(np.asarray(tf.get_static_value(op.outputs[0])))]
    if op.type in COMPLEX:
        return [COMPLEX[op.type](op, inputs)]
    if op.type in LINEAR:
        parts = [apply([_part(value, name) for value in inputs]) for name in ("real", "imaginary")]
        return [Complex(*pair) for pair in zip(*parts, strict=True)]
    raise Refusal("computes with complex numbers, which have no kernel; compute with real and imaginary parts")


def _part(value: Value, name: str) -> Value:
    return getattr(value, name) if isinstance(value, Complex) else value


def constant(numbers: NDArray[Any]) -> Complex:
    """Return constant complex numbers."""
    return Complex(tf.constant(numbers.real.astype(np.float32)), tf.constant(numbers.imag.astype(np.float32)))


def of_real(x: tf.Tensor) -> Complex:
    """Return real numbers as complex numbers."""
    return Complex(x, tf.zeros_like(x))


def _absolute(z: Complex) -> tf.Tensor:
    return tf.sqrt(tf.square(z.real) + tf.square(z.imaginary))


FORMULAS: dict[str, Callable[..., Value]] = {
    "Real": lambda z: z.real,
    "Imag": lambda z: z.imaginary,
    "Conj": lambda z: z.conjugate,
    "ComplexAbs": _absolute,
    "Angle": lambda z: tf.atan2(z.imaginary, z.real),
    **dict.fromkeys(("Add", "AddV2"), operator.add),
    "Sub": operator.sub,
    "Mul": operator.mul,
    "RealDiv": operator.truediv,
    "Square": lambda z: z * z,
}


def _of_inputs(formula: Callable[..., Value]) -> ComplexLowering:
    return lambda op, inputs: formula(*inputs)


COMPLEX.update({name: _of_inputs(formula) for name, formula in FORMULAS.items()})


@on_complex("Complex")
def complex_(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute Z = X + i Y."""
    x, y = map(tensor_of, inputs)
    return Complex(x, y) if x.shape == y.shape else Complex(x + tf.zeros_like(y), y + tf.zeros_like(x))


@on_complex("Cast")
def cast(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute X + 0 i from real numbers X, or the real part X of complex numbers."""
    (x,) = inputs
    if isinstance(x, Complex):
        return x if op.outputs[0].dtype == tf.complex64 else tf.cast(x.real, op.outputs[0].dtype)
    return of_real(tf.cast(tensor_of(x), tf.float32))


@on_complex("DivNoNan")
def divide_no_nan(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute A / B, and 0 where B = 0."""
    a, b = inputs
    zero = tf.equal(tf.abs(b.real) + tf.abs(b.imaginary), 0.0)
    quotient = a / Complex(tf.where(zero, 1.0, b.real), b.imaginary)
    nothing = tf.zeros_like(quotient.real)
    return Complex(tf.where(zero, nothing, quotient.real), tf.where(zero, nothing, quotient.imaginary))


@on_complex("Exp")
def exponential(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute e^X (cos Y + i sin Y) for Z = X + i Y."""
    size = tf.exp(inputs[0].real)
    return Complex(size * tf.cos(inputs[0].imaginary), size * tf.sin(inputs[0].imaginary))


@on_complex("Sign")
def sign(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute Z / |Z|, and 0 where Z = 0."""
    return divide_no_nan(op, [inputs[0], of_real(_absolute(inputs[0]))])


@on_complex("Fill")
def fill(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute a tensor filled with one number."""
    shape = tensor_of(inputs[0])
    return Complex(tf.fill(shape, inputs[1].real), tf.fill(shape, inputs[1].imaginary))


@on_complex("MatMul", "BatchMatMulV2")
def product(op: tf.Operation, inputs: list[Value]) -> Value:
    """Compute A B, where A and B may be transposed or adjoint."""
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    a, b = (
        _turned(x, adjoint=op.type != "MatMul") if op.get_attr(n) else x for x, n in zip(inputs, names, strict=True)
    )
    return Complex(
        tf.matmul(a.real, b.real) - tf.matmul(a.imaginary, b.imaginary),
        tf.matmul(a.real, b.imaginary) + tf.matmul(a.imaginary, b.real),
    )


def _turned(x: Complex, *, adjoint: bool) -> Complex:
    turned = Complex(tf.linalg.matrix_transpose(x.real), tf.linalg.matrix_transpose(x.imaginary))
    return turned.conjugate if adjoint else turned
