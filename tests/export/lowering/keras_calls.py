"""Calls of the functions of `keras.ops` on small inputs, to be differentiated with respect to each float input."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import NDArray

Arrays = tuple[NDArray[Any], ...]
RANDOM = np.random.default_rng(5)


@dataclass(frozen=True)
class KerasCall:
    """A call of a function of `keras.ops`.

    Attributes:
        function: A function of a tensor per input, which returns a tensor or a structure of tensors.
        inputs: The inputs.
        tolerance: The relative and absolute tolerance against TensorFlow.
    """

    function: Callable[..., Any]
    inputs: Arrays
    tolerance: float = 1e-5


def normal(*shape: int) -> NDArray[np.float32]:
    return RANDOM.normal(size=shape).astype(np.float32)


def apart(*shape: int) -> NDArray[np.float32]:
    """Return numbers of both signs that are not close to each other or to an integer."""
    numbers = (np.arange(np.prod(shape)) - 0.4 * np.prod(shape)) * 0.173 + 0.061
    return RANDOM.permutation(numbers).reshape(shape).astype(np.float32)


def positive(*shape: int) -> NDArray[np.float32]:
    return RANDOM.uniform(0.2, 3.0, shape).astype(np.float32)


def unit(*shape: int) -> NDArray[np.float32]:
    return RANDOM.uniform(-0.9, 0.9, shape).astype(np.float32)


def regular(*shape: int) -> NDArray[np.float32]:
    """Return matrices that are far from singular."""
    return (unit(*shape) + 3.0 * np.eye(shape[-1])).astype(np.float32)


def definite(*shape: int) -> NDArray[np.float32]:
    """Return symmetric positive definite matrices."""
    a = regular(*shape)
    return np.asarray(a @ np.swapaxes(a, -1, -2) / 3.0, np.float32)


def integers(*shape: int, below: int = 5) -> NDArray[np.int32]:
    return RANDOM.integers(0, below, shape).astype(np.int32)


def odd_numbers() -> NDArray[np.float32]:
    return np.array([[1.5, np.nan, -np.inf], [np.inf, -0.0, -2.0]], np.float32)


def of(names: str, inputs: Callable[..., Any] = apart, arguments: int = 1, **settings: Any) -> dict[str, KerasCall]:
    """Return a call per name with tensors of one shape."""
    return {
        name: KerasCall(
            lambda *x, name=name: getattr(ops, name)(*x, **settings), tuple(inputs(3, 4) for _ in range(arguments))
        )
        for name in names.split()
    }


def call(function: Callable[..., Any], *inputs: NDArray[Any], tolerance: float = 1e-5) -> KerasCall:
    return KerasCall(function, inputs, tolerance)


ELEMENTWISE = {
    **of("abs absolute arcsinh arctan cbrt celu ceil cos cosh deg2rad elu erf erfc exp exp2 expm1 fabs floor gelu"),
    **of("hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh isfinite isinf isnan leaky_relu log_sigmoid"),
    **of(
        "log_softmax logical_not negative ones_like rad2deg relu relu6 round selu sigmoid sign signbit silu sin sinc sinh"
    ),
    **of("soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid square squareplus stop_gradient swish tan"),
    **of("tanh tanh_shrink trunc zeros_like copy ravel conj conjugate real isneginf isposinf isreal angle imag"),
    **of("log log10 log1p log2 reciprocal rsqrt sqrt", positive),
    **of("arccos arcsin arctanh erfinv", unit),
    "arccosh": call(lambda x: ops.arccosh(x + 1.1), positive(3, 4)),
    **of(
        "add arctan2 divide divide_no_nan equal fmax fmin greater greater_equal heaviside hypot less less_equal",
        arguments=2,
    ),
    **of(
        "logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum multiply not_equal subtract",
        arguments=2,
    ),
    **of("true_divide floor_divide fmod mod isclose allclose", arguments=2),
    "power": call(ops.power, positive(3, 4), apart(3, 4)),
    "ldexp": call(ops.ldexp, apart(3, 4), integers(3, 4)),
    "clip": call(lambda x: ops.clip(x, -0.5, 0.5), apart(3, 4)),
    "threshold": call(lambda x: ops.threshold(x, 0.1, 0.2), apart(3, 4)),
    "glu": call(ops.glu, apart(3, 4)),
    "sparsemax": call(ops.sparsemax, apart(3, 4)),
    "where": call(lambda x, y: ops.where(x > y, x, y * y), apart(3, 4), normal(3, 4)),
    "select": call(lambda x: ops.select([x > 0.5, x > 0.0], [x, x * x], -x), apart(3, 4)),
    "nan_to_num": call(ops.nan_to_num, odd_numbers()),
    "isnan of NaN": call(lambda x: (ops.isnan(x), ops.isinf(x), ops.isfinite(x)), odd_numbers()),
    "cast": call(lambda x: ops.cast(ops.cast(x, "int32"), "float32") * x, apart(3, 4)),
    "saturate_cast": call(lambda x: ops.cast(ops.saturate_cast(x, "int8"), "float32") * x, apart(3, 4)),
    "polar": call(lambda x, y: ops.abs(ops.polar(x, y)), positive(3, 4), apart(3, 4)),
}

WHOLE = {
    **of(
        "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift left_shift right_shift gcd lcm",
        integers,
        2,
    ),
    **of("bitwise_invert bitwise_not", integers),
    "whole mod": call(lambda x, y: (ops.mod(x, y + 1), ops.floor_divide(x, y + 1)), integers(3, 4), integers(3, 4)),
    "one_hot": call(lambda x: ops.one_hot(x, 5), integers(3, 4)),
    "multi_hot": call(lambda x: ops.multi_hot(x, 5), integers(3, 4)),
    "bincount": call(lambda x: tf.math.bincount(x, minlength=5, maxlength=5), integers(3, 4)),
    "digitize": call(lambda x: ops.digitize(x, np.array([-0.5, 0.2, 0.7], np.float32)), apart(3, 4)),
    "searchsorted": call(lambda x: ops.searchsorted(np.array([-0.5, 0.2, 0.7], np.float32), x), apart(4)),
    "in_top_k": call(lambda x: ops.in_top_k(np.array([1, 0, 2]), x, 2), apart(3, 4)),
    "unravel_index": call(lambda x: ops.unravel_index(x, (2, 3)), integers(4)),
    "histogram": call(lambda x: ops.histogram(x, bins=4, range=(-1.0, 1.0))[0], apart(12)),
    "argmax": call(lambda x: (ops.argmax(x, 1), ops.argmin(x, 1), ops.argmax(x)), apart(3, 4)),
    "count_nonzero": call(lambda x: ops.count_nonzero(ops.relu(x), 1), apart(3, 4)),
}

REDUCTIONS = {
    **of(
        "amax amin average max mean min prod std sum var logsumexp ptp nanmax nanmin nanmean nanprod nanstd nansum",
        axis=1,
    ),
    **of(
        "nanvar median cumsum cumprod nancumsum nancumprod any all sort argsort flip diff nanargmax nanargmin",
        axis=1,
    ),
    "quantile": call(lambda x: ops.quantile(x, [0.2, 0.7], axis=1), apart(3, 5)),
    "percentile": call(lambda x: ops.percentile(x, 30.0, axis=1), apart(3, 5)),
    "moments": call(lambda x: ops.moments(x, [0, 1]), apart(3, 4)),
    "norm": call(lambda x: (ops.norm(x), ops.norm(x, 1, axis=1), ops.norm(x, np.inf, axis=1)), apart(3, 4)),
    "norm of matrices": call(lambda x: ops.norm(x, "fro", axis=(1, 2)), apart(2, 3, 4)),
    "trapezoid": call(lambda x: ops.trapezoid(x, axis=1), apart(3, 4)),
    "prod with zeros": call(lambda x: ops.prod(ops.relu(x), axis=1), apart(3, 4)),
    "cumprod with zeros": call(lambda x: ops.cumprod(ops.relu(x), axis=1), apart(3, 4)),
    "top_k": call(lambda x: ops.top_k(x, 2)[0], apart(3, 5)),
    "argpartition": call(lambda x: ops.sort(ops.argpartition(x, 2, axis=1)[:, :2]), apart(3, 5)),
    "psnr": call(lambda x, y: ops.psnr(x, y, 1.0), apart(3, 4), apart(3, 4)),
    "segment_sum": call(lambda x: ops.segment_sum(x, np.array([0, 2, 2, 1]), 4), apart(4, 3)),
    "segment_max": call(lambda x: ops.segment_max(x, np.array([0, 2, 2, 1]), 3), apart(4, 3)),
    "segment_min": call(lambda x: ops.segment_min(x, np.array([0, 2, 2, 1]), 3), apart(4, 3)),
    "segment_prod": call(lambda x: ops.segment_prod(x, np.array([0, 2, 2, 1]), 3), apart(4, 3)),
}

SHAPES = {
    "append": call(lambda x, y: ops.append(x, y, axis=1), apart(3, 4), apart(3, 2)),
    "array_split": call(lambda x: ops.array_split(x, 3, axis=1), apart(3, 5)),
    "broadcast_to": call(lambda x: ops.broadcast_to(x, (2, 3, 4)), apart(3, 4)),
    "concatenate": call(lambda x, y: ops.concatenate([x, y], 1), apart(3, 4), apart(3, 2)),
    "depth_to_space": call(lambda x: ops.depth_to_space(x, 2), apart(2, 3, 2, 8)),
    "space_to_depth": call(lambda x: ops.space_to_depth(x, 2), apart(2, 4, 6, 3)),
    "diag": call(lambda x: (ops.diag(x), ops.diagflat(x)), apart(4)),
    "diag of a matrix": call(lambda x: (ops.diag(x), ops.diagonal(x, 1), ops.trace(x)), apart(4, 4)),
    "diagonal": call(lambda x: ops.diagonal(x, 1, 1, 2), apart(2, 3, 4)),
    "dstack": call(lambda x, y: (ops.dstack([x, y]), ops.hstack([x, y]), ops.vstack([x, y])), apart(3, 4), apart(3, 4)),
    "dsplit": call(lambda x: (ops.dsplit(x, 2), ops.hsplit(x, 2), ops.vsplit(x, 2)), apart(2, 4, 4)),
    "expand_dims": call(lambda x: ops.squeeze(ops.expand_dims(x, 1), 1), apart(3, 4)),
    "extract_sequences": call(lambda x: ops.extract_sequences(x, 4, 2), apart(2, 9)),
    "fliplr": call(lambda x: (ops.fliplr(x), ops.flipud(x), ops.rot90(x)), apart(3, 4)),
    "fold": call(lambda x: ops.fold(x, (4, 4), 2, stride=2), apart(2, 12, 4)),
    "unfold": call(lambda x: ops.unfold(x, 2, stride=2), apart(2, 3, 4, 4)),
    "full_like": call(lambda x: x * ops.full_like(x, 3.0) + ops.empty_like(x) * 0.0, apart(3, 4)),
    "get_item": call(lambda x: ops.get_item(x, (slice(1, None), 2)), apart(3, 4)),
    "meshgrid": call(lambda x, y: ops.meshgrid(x, y), apart(3), apart(4)),
    "moveaxis": call(lambda x: (ops.moveaxis(x, 0, 2), ops.swapaxes(x, 0, 1), ops.transpose(x)), apart(2, 3, 4)),
    "pad": call(lambda x: ops.pad(x, ((1, 0), (2, 1))), apart(3, 4)),
    "pad by reflection": call(lambda x: ops.pad(x, ((1, 0), (2, 1)), "reflect"), apart(3, 4)),
    "pad by symmetry": call(lambda x: ops.pad(x, ((1, 0), (2, 1)), "symmetric"), apart(3, 4)),
    "rearrange": call(lambda x: ops.rearrange(x, "b (h c) -> b c h", h=2), apart(3, 4)),
    "repeat": call(lambda x: (ops.repeat(x, 3, axis=1), ops.repeat(x, 2)), apart(3, 4)),
    "repeat by numbers": call(lambda x: ops.repeat(x, np.array([1, 0, 3, 2]), axis=1), apart(3, 4)),
    "reshape": call(lambda x: ops.reshape(x, (4, -1)), apart(3, 4)),
    "roll": call(lambda x: (ops.roll(x, 2), ops.roll(x, -1, axis=1)), apart(3, 4)),
    "scatter": call(lambda x: ops.scatter(np.array([[1], [3], [1]]), x, (5, 4)), apart(3, 4)),
    "scatter_update": call(lambda x, y: ops.scatter_update(x, np.array([[1], [3]]), y), apart(5, 4), apart(2, 4)),
    "slice": call(lambda x: ops.slice(x, (1, 1), (2, 3)), apart(3, 4)),
    "split": call(lambda x: ops.split(x, 2, axis=1), apart(3, 4)),
    "stack": call(lambda x, y: ops.unstack(ops.stack([x, y], 1), axis=2), apart(3, 4), apart(3, 4)),
    "take": call(lambda x: (ops.take(x, [3, 1, 1], axis=1), ops.take(x, [0, 5])), apart(3, 4)),
    "take_along_axis": call(lambda x, i: ops.take_along_axis(x, i, axis=1), apart(3, 4), integers(3, 2, below=4)),
    "tile": call(lambda x: ops.tile(x, (2, 3)), apart(3, 4)),
    "tril": call(lambda x: (ops.tril(x), ops.triu(x, 1), ops.tril(x, -1)), apart(2, 3, 4)),
    "vander": call(lambda x: ops.vander(x, 4), apart(3)),
    "view": call(lambda x: ops.view(ops.view(x, "int32"), "float32"), apart(3, 4)),
}

CONSTANTS = {
    "kaiser": call(lambda x: x * ops.kaiser(4, 2.0), apart(3, 4)),
    "arange": call(lambda x: x * ops.cast(ops.arange(4), "float32") * ops.linspace(0.0, 1.0, 4), apart(3, 4)),
    "logspace": call(lambda x: x * ops.logspace(0.0, 1.0, 4) * ops.geomspace(1.0, 9.0, 4), apart(3, 4)),
    "eye": call(
        lambda x: x @ ops.eye(4) @ ops.tri(4) + ops.ones((4,)) + ops.zeros((4,)) + ops.full((4,), 2.0), apart(3, 4)
    ),
}

PRODUCTS = {
    "matmul": call(ops.matmul, apart(3, 4), apart(4, 2)),
    "cross": call(ops.cross, apart(4, 3), apart(4, 3)),
    "dot": call(ops.dot, apart(3, 4), apart(4, 2)),
    "outer": call(ops.outer, apart(3), apart(4)),
    "tensordot": call(lambda x, y: ops.tensordot(x, y, axes=[[1, 2], [0, 1]]), apart(2, 3, 4), apart(3, 4, 2)),
    "cdist": call(ops.cdist, apart(3, 4), normal(2, 4)),
    "correlate": call(lambda x, y: ops.correlate(x, y, "same"), apart(6), apart(3)),
    "einsum": call(lambda x, y: ops.einsum("bij,bkj->bik", x, y), apart(2, 3, 4), apart(2, 5, 4)),
    "einsum, elements": call(lambda x, y: ops.einsum("btw,tw->wbt", x, y), apart(2, 3, 4), apart(3, 4)),
    "einsum, elements of one": call(lambda x, y: ops.einsum("w,btw->btw", x, y), apart(4), apart(2, 3, 4)),
    "einsum, summed elements": call(lambda x, y: ops.einsum("btw,wbt->tw", x, y), apart(2, 1, 4), apart(4, 2, 1)),
    "einsum, three": call(lambda x, y, z: ops.einsum("bi,ij,bj->b", x, y, z), apart(2, 3), apart(3, 4), apart(2, 4)),
    "einsum, dots": call(lambda x, y: ops.einsum("...i,ij->...j", x, y), apart(2, 2, 3), apart(3, 4)),
    "einsum, traces": call(lambda x: ops.einsum("bii->b", x), apart(2, 3, 3)),
    "einsum, diagonals": call(lambda x: ops.einsum("bii->bi", x), apart(2, 3, 3)),
    "einsum, sums": call(lambda x, y: ops.einsum("bij,bk->bk", x, y), apart(2, 3, 4), apart(2, 5)),
}

NETWORKS = {
    "adaptive_average_pool": call(lambda x: ops.adaptive_average_pool(x, (3, 2)), apart(2, 5, 4, 2)),
    "adaptive_max_pool": call(lambda x: ops.adaptive_max_pool(x, (3, 2)), apart(2, 5, 4, 2)),
    "average_pool": call(lambda x: ops.average_pool(x, 2, 1, "same"), apart(2, 5, 4, 2)),
    "average_pool 3D": call(lambda x: ops.average_pool(x, 2, 2, "same"), apart(2, 3, 4, 5, 2)),
    "max_pool": call(lambda x: ops.max_pool(x, 2, 2), apart(2, 5, 4, 2)),
    "max_pool 3D": call(lambda x: ops.max_pool(x, 2, 2, "same"), apart(2, 3, 4, 5, 2)),
    "batch_normalization": call(
        lambda x, m, v: ops.batch_normalization(x, m, v, 1), apart(3, 4), normal(4), positive(4)
    ),
    "layer_normalization": call(lambda x: ops.layer_normalization(x), apart(3, 4)),
    "rms_normalization": call(lambda x, s: ops.rms_normalization(x, s), apart(3, 4), normal(4)),
    "normalize": call(lambda x: ops.normalize(x, axis=1), apart(3, 4)),
    "binary_crossentropy": call(
        lambda x: ops.binary_crossentropy(np.eye(3, 4, dtype=np.float32), x, True), apart(3, 4)
    ),
    "categorical_crossentropy": call(
        lambda x: ops.categorical_crossentropy(np.eye(3, 4, dtype=np.float32), x, True), apart(3, 4)
    ),
    "sparse_categorical_crossentropy": call(
        lambda x: ops.sparse_categorical_crossentropy(np.array([1, 0, 3]), x, True), apart(3, 4)
    ),
    "conv": call(lambda x, w: ops.conv(x, w, 1, "same"), apart(2, 5, 4, 2), apart(3, 3, 2, 3)),
    "conv 1D": call(lambda x, w: ops.conv(x, w, 2, "valid"), apart(2, 7, 2), apart(3, 2, 3)),
    "conv 3D": call(lambda x, w: ops.conv(x, w, (1, 2, 1), "same"), apart(2, 3, 4, 5, 2), apart(2, 3, 2, 2, 3)),
    "conv_transpose": call(lambda x, w: ops.conv_transpose(x, w, 2, "same"), apart(2, 3, 4, 2), apart(3, 3, 4, 2)),
    "conv_transpose 3D": call(lambda x, w: ops.conv_transpose(x, w, 2), apart(1, 2, 2, 3, 2), apart(2, 3, 2, 3, 2)),
    "depthwise_conv": call(lambda x, w: ops.depthwise_conv(x, w), apart(2, 5, 4, 2), apart(3, 3, 2, 1)),
    "separable_conv": call(
        lambda x, w, p: ops.separable_conv(x, w, p), apart(2, 5, 4, 2), apart(3, 3, 2, 1), apart(1, 1, 2, 3)
    ),
    "dot_product_attention": call(
        lambda q, k, v: ops.dot_product_attention(q, k, v, is_causal=True), *(unit(2, 3, 2, 4) for _ in range(3))
    ),
}

FOURIER = {
    "fft": call(lambda x, y: ops.fft((x, y)), apart(2, 6), normal(2, 6)),
    "fft of 7": call(lambda x, y: ops.fft((x, y)), apart(2, 7), normal(2, 7)),
    "fft2": call(lambda x, y: ops.fft2((x, y)), apart(2, 3, 4), normal(2, 3, 4)),
    "ifft2": call(lambda x, y: ops.ifft2((x, y)), apart(2, 3, 4), normal(2, 3, 4)),
    "rfft": call(lambda x: ops.rfft(x), apart(2, 8)),
    "rfft padded": call(lambda x: ops.rfft(x, 8), apart(2, 6)),
    "rfft of 7": call(lambda x: ops.rfft(x), apart(2, 7)),
    "irfft": call(lambda x, y: ops.irfft((x, y)), apart(2, 5), normal(2, 5)),
    "irfft of 7": call(lambda x, y: ops.irfft((x, y), 7), apart(2, 4), normal(2, 4)),
    "stft": call(lambda x: ops.stft(x, 8, 4, 8), apart(2, 20)),
    "istft": call(lambda x, y: ops.istft((x, y), 8, 4, 8), apart(2, 6, 5), normal(2, 6, 5)),
    "rfft of 512": call(lambda x: ops.rfft(x), unit(2, 512), tolerance=1e-4),
    "imag of rfft": call(lambda x: ops.rfft(x)[1], unit(2, 6)),
    "complex numbers": call(
        lambda x, y: ops.abs(ops.square(ops.view_as_complex(ops.stack([x, y], -1)))), apart(3, 4), normal(3, 4)
    ),
    "view_as_real": call(
        lambda x, y: ops.view_as_real(ops.view_as_complex(ops.stack([x, y], -1)) * 2.0), apart(3, 4), normal(3, 4)
    ),
}

LOOPS = {
    "associative_scan": call(lambda x: ops.associative_scan(lambda a, b: a * b, x, axis=1), unit(3, 5)),
    "cond": call(lambda x: ops.cond(ops.sum(x) > 0.0, lambda: x * x, lambda: ops.exp(x)), unit(3, 4)),
    "switch": call(lambda x: ops.switch(ops.argmax(x[0]), [lambda v: v * v, ops.exp, ops.sin, ops.cos], x), unit(3, 4)),
    "fori_loop": call(lambda x: ops.fori_loop(0, 3, lambda i, v: ops.sin(v) * x, x), unit(3, 4)),
    "map": call(lambda x: ops.map(lambda v: v * ops.sum(v), x), unit(3, 4)),
    "scan": call(
        lambda x, w: ops.scan(lambda c, v: (ops.tanh(c @ w + v), c * v), ops.zeros((2, 4)), x),
        unit(3, 2, 4),
        unit(4, 4),
    ),
    "vectorized_map": call(lambda x: ops.vectorized_map(lambda v: v * ops.sum(v), x), unit(3, 4)),
    "while_loop": call(
        lambda x: ops.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, ops.sin(v) * v), (0, x))[1], unit(3, 4)
    ),
    "while_loop over data": call(
        lambda x: ops.while_loop(lambda v: ops.sum(v) < 9.0, lambda v: (2.0 * v,), (x,), maximum_iterations=9)[0],
        positive(2),
    ),
    "custom_gradient": call(
        lambda x: ops.custom_gradient(
            lambda v: (v * v, lambda *a, upstream=None: 3.0 * (upstream if upstream is not None else a[0]))
        )(x),
        unit(3, 4),
    ),
}

IMAGES = {
    f"resize {way}": call(lambda x, way=way: ops.image.resize(x, (7, 6), interpolation=way), apart(2, 4, 5, 2))
    for way in ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
} | {
    "resize antialias": call(lambda x: ops.image.resize(x, (3, 4), antialias=True), apart(2, 7, 9, 2)),
    "crop_images": call(lambda x: ops.image.crop_images(x, 1, 1, target_height=2, target_width=3), apart(2, 4, 5, 2)),
    "pad_images": call(lambda x: ops.image.pad_images(x, 1, 1, target_height=7, target_width=8), apart(2, 4, 5, 2)),
    "elastic_transform": call(lambda x: ops.image.gaussian_blur(x, (3, 3), (1.0, 1.0)), apart(2, 4, 5, 2)),
    "extract_patches": call(lambda x: ops.image.extract_patches(x, (2, 2), padding="valid"), apart(2, 4, 5, 2)),
    "rgb_to_grayscale": call(ops.image.rgb_to_grayscale, apart(2, 4, 5, 3)),
    "map_coordinates": call(
        lambda x: ops.image.map_coordinates(x, np.array([[0.5, 1.2], [1.3, 2.2]], np.float32), 1), apart(4, 5)
    ),
    "sobel_edges": call(
        ops.image.sobel_edges if hasattr(ops.image, "sobel_edges") else (lambda x: x), apart(2, 4, 5, 2)
    ),
    "scale_and_translate": call(
        lambda x: ops.image.scale_and_translate(
            x, (2, 6, 7, 2), np.array([1.5, 1.4], np.float32), np.array([0.2, 0.1], np.float32), (1, 2), "linear"
        ),
        apart(2, 4, 5, 2),
    ),
}
IMAGES |= {
    "hsv_to_rgb": call(ops.image.hsv_to_rgb, RANDOM.uniform(0.1, 0.9, (2, 4, 5, 3)).astype(np.float32)),
    "rgb_to_hsv": call(ops.image.rgb_to_hsv, RANDOM.uniform(0.1, 0.9, (2, 4, 5, 3)).astype(np.float32)),
    "affine_transform": call(
        lambda x: ops.image.affine_transform(x, np.array([[1.0, 0.1, 0, 0, 1.0, 0, 0, 0]] * 2, np.float32)),
        apart(2, 4, 5, 2),
    ),
    "perspective_transform": call(
        lambda x: ops.image.perspective_transform(
            x,
            np.array([[0, 0], [4, 0], [0, 3], [4, 3]], np.float32),
            np.array([[0, 1], [4, 0], [0, 3], [3, 3]], np.float32),
        ),
        apart(4, 5, 2),
    ),
}
ALGEBRA = {
    "cholesky": call(ops.cholesky, definite(2, 3, 3), tolerance=1e-4),
    "cholesky_inverse": call(ops.cholesky_inverse, np.tril(definite(3, 3))),
    "logdet": call(ops.logdet, definite(2, 3, 3), tolerance=1e-4),
    "solve_triangular": call(
        lambda a, b: ops.solve_triangular(a, b, lower=True), regular(2, 3, 3), apart(2, 3, 2), tolerance=1e-4
    ),
    "inv": call(ops.inv, regular(2, 3, 3), tolerance=1e-4),
    "solve": call(ops.solve, regular(2, 3, 3), apart(2, 3, 2), tolerance=1e-4),
}

FAMILIES = {
    "elementwise": ELEMENTWISE,
    "integers": WHOLE,
    "reductions": REDUCTIONS,
    "shapes": SHAPES,
    "constants": CONSTANTS,
    "products": PRODUCTS,
    "networks": NETWORKS,
    "loops": LOOPS,
    "images": IMAGES,
    "linear algebra": ALGEBRA,
    "Fourier": FOURIER,
}
FAST = {"arctan", "cumprod", "isnan of NaN", "scan", "conv 3D", "max_pool 3D", "top_k", "pad by reflection", "roll"}
MISSING = "no TFLite built-in kernel and no lowering|computes with complex numbers|reduces a product of vectors"
REFUSED: dict[str, tuple[KerasCall, str]] = {
    name: (function, MISSING)
    for name, function in {
        "inner": call(ops.inner, apart(4), apart(4)),
        "vdot": call(ops.vdot, apart(3, 4), apart(3, 4)),
        "lstsq": call(ops.lstsq, regular(3, 3), apart(3, 2), tolerance=1e-4),
        "matrix_rank": call(ops.matrix_rank, regular(3, 3)),
        "pinv": call(ops.pinv, regular(3, 3), tolerance=1e-4),
        "svd": call(lambda x: ops.svd(x)[1], regular(3, 3), tolerance=1e-4),
        "eig": call(lambda x: ops.real(ops.eig(x)[0]), definite(3, 3)),
        "eigh": call(lambda x: ops.eigh(x)[0], definite(3, 3), tolerance=1e-4),
        "det": call(ops.det, regular(2, 3, 3), tolerance=1e-4),
        "slogdet": call(ops.slogdet, regular(2, 3, 3), tolerance=1e-4),
        "qr": call(ops.qr, regular(2, 3, 3), tolerance=1e-4),
        "ctc_loss": call(
            lambda x: ops.ctc_loss(np.array([[1, 2], [2, 2]]), x, np.array([2, 1]), np.array([5, 4])),
            apart(2, 5, 4),
            tolerance=1e-4,
        ),
        "ctc_decode": call(lambda x: ops.ctc_decode(x, np.array([5, 4]))[0], apart(2, 5, 4)),
    }.items()
}
