"""Elementwise ATen ops."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from odt_sim.export.torch.registry import OPS, computes, expect, number

_UNARY: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "abs": tf.abs, "acos": tf.acos, "acosh": tf.acosh, "alias": tf.identity, "asin": tf.asin, "asinh": tf.asinh,
    "atan": tf.atan, "atanh": tf.atanh, "ceil": tf.math.ceil, "clone": tf.identity,
    "contiguous": tf.identity, "cos": tf.cos, "cosh": tf.cosh, "detach": tf.stop_gradient, "detach_": tf.stop_gradient,
    "erf": tf.math.erf, "erfc": tf.math.erfc, "exp": tf.exp, "exp2": lambda x: tf.pow(2.0, x), "expm1": tf.math.expm1,
    "floor": tf.floor, "hardsigmoid": lambda x: tf.nn.relu6(x + 3.0) / 6.0,
    "hardswish": lambda x: x * (tf.nn.relu6(x + 3.0) / 6.0),
    "isnan": tf.math.is_nan, "lift_fresh_copy": tf.identity, "log": tf.math.log,
    "log10": lambda x: tf.math.log(x) * (1 / math.log(10)), "log1p": tf.math.log1p,
    "log2": lambda x: tf.math.log(x) * (1 / math.log(2)), "log_sigmoid": tf.math.log_sigmoid,
    "isinf": tf.math.is_inf, "lgamma": tf.math.lgamma, "digamma": tf.math.digamma, "positive": tf.identity,
    "neg": tf.negative, "reciprocal": tf.math.reciprocal, "relu": tf.nn.relu,
    "relu6": tf.nn.relu6, "rsqrt": tf.math.rsqrt, "selu": tf.nn.selu, "sigmoid": tf.sigmoid,
    "sign": tf.sign, "silu": tf.nn.silu, "sin": tf.sin, "sinh": tf.sinh, "softsign": tf.nn.softsign, "sqrt": tf.sqrt,
    "square": tf.square, "tan": tf.tan, "tanh": tf.tanh,
}  # fmt: skip
_BITS: dict[str, tuple[Callable[..., tf.Tensor], Callable[..., tf.Tensor]]] = {
    "bitwise_and": (tf.logical_and, tf.bitwise.bitwise_and), "bitwise_or": (tf.logical_or, tf.bitwise.bitwise_or),
    "bitwise_xor": (tf.math.logical_xor, tf.bitwise.bitwise_xor), "bitwise_not": (tf.logical_not, tf.bitwise.invert),
}  # fmt: skip
"""The functions for booleans and for integers."""
_LOGICAL: dict[str, Callable[..., tf.Tensor]] = {
    "logical_and": tf.logical_and, "logical_or": tf.logical_or, "logical_xor": tf.math.logical_xor,
    "logical_not": tf.logical_not,
}  # fmt: skip
_COMPARE: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "eq": tf.equal, "ne": tf.not_equal, "gt": tf.greater, "ge": tf.greater_equal, "lt": tf.less, "le": tf.less_equal,
    "maximum": tf.maximum, "minimum": tf.minimum, "atan2": tf.atan2,
}  # fmt: skip


def _first(function: Callable[[tf.Tensor], tf.Tensor]) -> Callable[..., tf.Tensor]:
    return lambda x, *_, **__: function(x)


def _both(function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> Callable[..., tf.Tensor]:
    return lambda x, y: function(*alike(x, y))


def _of_booleans(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    return lambda *given: function(*(tf.cast(x, tf.bool) for x in given))


def _of_bits(logical: Callable[..., tf.Tensor], of_integers: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    def computed(x: tf.Tensor, *other: Any) -> tf.Tensor:
        given = alike(x, other[0]) if other else (x,)
        return (logical if given[0].dtype == tf.bool else of_integers)(*given)

    return computed


OPS.update({name: _first(function) for name, function in _UNARY.items()})
OPS.update({name: _both(function) for name, function in _COMPARE.items()})
OPS.update({name: _of_booleans(function) for name, function in _LOGICAL.items()})
OPS.update({name: _of_bits(*functions) for name, functions in _BITS.items()})


def alike(x: Any, y: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two operands with PyTorch's common type: complex, float, integer, boolean, and tensors before numbers."""
    if not isinstance(x, tf.Tensor):
        y, x = alike(y, x)
        return x, y
    if isinstance(y, complex):
        return tf.cast(x, tf.complex64), tf.constant(y, tf.complex64)
    if not isinstance(y, tf.Tensor):
        if x.dtype.is_floating or (isinstance(y, int) and x.dtype.is_integer):
            return x, tf.cast(y, x.dtype)
        y = tf.constant(y, tf.float32 if isinstance(y, float) else tf.int32)
    wanted = next((d for d in (tf.complex64, tf.float32, tf.int32) if d in (x.dtype, y.dtype)), x.dtype)
    return tf.cast(x, wanted), tf.cast(y, wanted)


def all_alike(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return tensors with PyTorch's common type."""
    wanted = next(d for d in (tf.complex64, tf.float32, tf.int32, tf.bool) if any(x.dtype == d for x in tensors))
    return [tf.cast(x, wanted) for x in tensors]


@computes("add")
def add(x: Any, y: Any, alpha: float = 1, *, sign: int = 1) -> tf.Tensor:
    """Return `x + alpha y`."""
    x, y = alike(x, y)
    factor = alpha * sign
    return x + y if factor == 1 else x - y if factor == -1 else x + number(factor, y) * y


OPS["sub"] = lambda x, y, alpha=1: add(x, y, alpha, sign=-1)


@computes("mul")
def multiply(x: Any, y: Any) -> tf.Tensor:
    """Return the product."""
    x, y = alike(x, y)
    return tf.logical_and(x, y) if x.dtype == tf.bool else x * y


@computes("div")
def divide(x: Any, y: Any, rounding_mode: str | None = None) -> tf.Tensor:
    """Return the quotient; integers become floats without rounding."""
    x, y = alike(x, y)
    if rounding_mode == "floor":
        return tf.stop_gradient(tf.math.floordiv(x, y))
    if rounding_mode == "trunc":
        quotient = divide(tf.stop_gradient(x), tf.stop_gradient(y))
        return tf.cast(trunc(quotient), x.dtype)
    return x / y if x.dtype.is_floating or x.dtype.is_complex else tf.cast(x, tf.float32) / tf.cast(y, tf.float32)


@computes("remainder")
def remainder(x: Any, y: Any) -> tf.Tensor:
    """Return the remainder with the sign of the divisor."""
    return tf.math.floormod(*alike(x, y))


@computes("fmod")
def fmod(x: Any, y: Any) -> tf.Tensor:
    """Return the remainder with the sign of the dividend."""
    x, y = alike(x, y)
    return x - divide(x, y, "trunc") * y


@computes("round")
def round_(x: tf.Tensor, *, decimals: int = 0) -> tf.Tensor:
    """Return numbers rounded to `decimals` decimal places, half to even; the gradient is 0."""
    return tf.round(x) if decimals == 0 else tf.round(x * 10.0**decimals) / 10.0**decimals


@computes("trunc")
def trunc(x: tf.Tensor) -> tf.Tensor:
    """Return numbers without their fractional part; the gradient is 0."""
    return tf.sign(x) * tf.floor(tf.abs(x))


@computes("pow")
def power(x: Any, y: Any) -> tf.Tensor:
    """Return a power; whole exponents from 2 to 4 become products, whose gradients are defined at 0."""
    if isinstance(y, int | float) and y in (2, 3, 4):
        square = tf.square(x)
        return square if y == 2 else square * x if y == 3 else tf.square(square)
    if isinstance(y, int | float) and y == 0.5:
        return tf.sqrt(x)
    return tf.pow(*alike(x, y))


@computes("leaky_relu")
def leaky_relu(x: tf.Tensor, negative_slope: float = 0.01) -> tf.Tensor:
    """Return x, multiplied by a slope if negative."""
    return tf.nn.leaky_relu(x, negative_slope)


@computes("elu")
def elu(x: tf.Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> tf.Tensor:
    """Return x above 0, else `alpha (e^x - 1)`."""
    expect("scale", (scale, input_scale), (1, 1), (1.0, 1.0))
    return tf.nn.elu(x) if alpha == 1 else tf.where(x > 0, x, alpha * tf.nn.elu(tf.minimum(x, 0.0)))


@computes("celu")
def celu(x: tf.Tensor, alpha: float = 1.0) -> tf.Tensor:
    """Return x above 0, else `alpha (e^(x / alpha) - 1)`."""
    return tf.nn.relu(x) + alpha * tf.nn.elu(tf.minimum(x, 0.0) / alpha)


@computes("gelu")
def gelu(x: tf.Tensor, *, approximate: str = "none") -> tf.Tensor:
    """Return x times the normal distribution's cumulative probability of x."""
    return tf.nn.gelu(x, approximate=approximate == "tanh")


@computes("softplus")
def softplus(x: tf.Tensor, beta: float = 1, threshold: float = 20) -> tf.Tensor:
    """Return `log(1 + e^(beta x)) / beta`, and x itself above `threshold / beta`."""
    smooth = tf.math.softplus(x * beta) / beta
    return smooth if threshold >= 20 else tf.where(x * beta > threshold, x, smooth)  # equal in float32 from 20 on


@computes("clamp", "hardtanh")
def clamp(x: tf.Tensor, least: Any = -1.0, most: Any = 1.0) -> tf.Tensor:
    """Limit values to a range; None for no limit."""
    x = x if least is None else tf.maximum(x, number(least, x))
    return x if most is None else tf.minimum(x, number(most, x))


@computes("where")
def where(condition: tf.Tensor, x: Any, y: Any) -> tf.Tensor:
    """Return x where a condition holds, otherwise y."""
    if not isinstance(x, tf.Tensor) and not isinstance(y, tf.Tensor):
        x = tf.constant(x, tf.float32)
    return tf.where(condition, *alike(x, y))


@computes("masked_fill")
def masked_fill(x: tf.Tensor, mask: tf.Tensor, value: Any) -> tf.Tensor:
    """Replace the values under a mask."""
    return tf.where(mask, number(_finite(value), x), x)


def _finite(value: Any) -> Any:
    """Return a number, infinity as the largest float32: LiteRT's softmax returns NaN for infinite logits."""
    infinite = isinstance(value, float) and math.isinf(value)
    return math.copysign(float(tf.float32.max), value) if infinite else value
