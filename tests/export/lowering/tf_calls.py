"""Calls of TensorFlow functions without a counterpart in Keras, to be differentiated."""

import numpy as np
import tensorflow as tf
from keras_calls import KerasCall, apart, call, integers, odd_numbers, positive, unit

QUANTIZATION = {
    "fake_quant_with_min_max_args": call(
        lambda x: tf.quantization.fake_quant_with_min_max_args(x, -0.5, 0.9, 8), apart(3, 4)
    ),
    "fake_quant_with_min_max_args, narrow": call(
        lambda x: tf.quantization.fake_quant_with_min_max_args(x, -0.5, 0.9, 4, True), apart(3, 4)
    ),
    "fake_quant_with_min_max_vars": call(
        lambda x, a, b: tf.quantization.fake_quant_with_min_max_vars(x, a, b),
        apart(3, 4),
        np.float32(-0.4),
        np.float32(0.7),
    ),
    "fake_quant_with_min_max_vars_per_channel": call(
        lambda x, a, b: tf.quantization.fake_quant_with_min_max_vars_per_channel(x, a, b, 5),
        apart(3, 4),
        -positive(4),
        positive(4),
    ),
}

TENSORFLOW = {
    "lgamma": call(tf.math.lgamma, apart(3, 4), tolerance=2e-5),
    "lgamma of positive numbers": call(tf.math.lgamma, positive(3, 4) * 9.0),
    "digamma": call(lambda x: tf.stop_gradient(tf.math.digamma(x)) * x, apart(3, 4), tolerance=2e-5),
    "lbeta": call(tf.math.lbeta, positive(3, 4)),
    "erfinv near 1": call(tf.math.erfinv, np.array([0.0, 0.999, -0.99999, 1e-6], np.float32), tolerance=1e-4),
    "asinh of large numbers": call(tf.math.asinh, np.array([1e-6, -30.0, 1e20], np.float32)),
    "cumsum": call(lambda x: (tf.cumsum(x, 1, exclusive=True), tf.cumsum(x, 0, reverse=True)), apart(3, 4)),
    "cumprod": call(
        lambda x: (tf.math.cumprod(x, 1, exclusive=True), tf.math.cumprod(x, 0, reverse=True)), apart(3, 4)
    ),
    "band_part": call(lambda x: tf.linalg.band_part(x, 1, 0), apart(2, 3, 4)),
    "set_diag": call(lambda x, d: tf.linalg.set_diag(x, d), apart(2, 3, 4), apart(2, 3)),
    "diag": call(lambda d: tf.linalg.diag(d, padding_value=2.0), apart(2, 3)),
    "diag_part of several": call(lambda x: tf.linalg.diag_part(x, k=(-1, 1)), apart(2, 3, 4)),
    "tensor_diag": call(tf.linalg.tensor_diag, apart(3)),
    "mirror_pad": call(lambda x: tf.pad(x, [[0, 0], [2, 1], [1, 2]], "REFLECT"), apart(2, 4, 5)),
    "boolean_mask": call(lambda x: tf.reduce_sum(tf.square(tf.boolean_mask(x, x > 0.0))), apart(3, 4)),
    "where": call(lambda x: tf.reduce_max(tf.gather_nd(x, tf.where(x > 0.0))), apart(3, 4)),
    "top_k": call(lambda x: (tf.math.top_k(x, 3).values, tf.math.top_k(x, 2).indices), apart(3, 5)),
    "sort": call(lambda x: (tf.sort(x, direction="DESCENDING"), tf.argsort(x, 0)), apart(3, 5)),
    "sort of integers": call(lambda x: tf.sort(x, 0), integers(5, 3)),
    "searchsorted": call(lambda x: tf.searchsorted(tf.sort(x), x, "right"), apart(3, 5)),
    "dynamic_stitch": call(lambda x, y: tf.dynamic_stitch([[0, 2], [3, 1]], [x, y]), apart(2, 3), apart(2, 3)),
    "tensor_scatter_nd_add": call(lambda x, u: tf.tensor_scatter_nd_add(x, [[1], [1]], u), apart(4, 3), apart(2, 3)),
    "tensor_scatter_nd_sub": call(lambda x, u: tf.tensor_scatter_nd_sub(x, [[1], [1]], u), apart(4, 3), apart(2, 3)),
    "sparse_dense_matmul": call(
        lambda v, b: tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, 1], [2, 0]], v, [3, 4]), b),
        apart(2),
        apart(4, 3),
    ),
    "gather_nd": call(lambda x: tf.gather_nd(x, [[0, 1], [2, 2], [0, 1]]), apart(3, 4)),
    "extract_patches": call(
        lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 2, 1], [1, 1, 1, 1], "SAME"), apart(2, 4, 5, 2)
    ),
    "reverse_sequence": call(lambda x: tf.reverse_sequence(x, [2, 3], 1), apart(2, 4, 3)),
    "einsum of TensorFlow": call(lambda x, y: tf.einsum("abc,cde->abde", x, y), apart(2, 3, 4), apart(4, 2, 2)),
    "max_pool3d of ties": call(
        lambda x: tf.nn.max_pool3d(x, 2, 1, "SAME"), integers(2, 3, 4, 3, 2, below=2).astype(np.float32)
    ),
    "avg_pool3d": call(lambda x: tf.nn.avg_pool3d(x, [2, 3, 2], [1, 2, 1], "SAME"), apart(2, 3, 5, 4, 2)),
    "max_pool3d": call(lambda x: tf.nn.max_pool3d(x, [2, 3, 1], [1, 2, 2], "VALID"), apart(2, 3, 5, 4, 2)),
    "max_pool2d unequal": call(lambda x: tf.nn.max_pool2d(x, [3, 2], [2, 1], "SAME"), apart(2, 5, 6, 2)),
    "is_nan": call(lambda x: (tf.math.is_nan(x), tf.math.is_inf(x), tf.math.is_finite(x)), odd_numbers()),
    "clip_by_norm": call(lambda x: tf.clip_by_norm(x, 1.0), apart(3, 4)),
    "reduce_euclidean_norm": call(lambda x: tf.math.reduce_euclidean_norm(x, 1), apart(3, 4)),
    "polyval": call(lambda x: tf.math.polyval([1.0, 2.0, 3.0], x), apart(3, 4)),
    "confusion_matrix": call(lambda x: tf.math.confusion_matrix(x, x, 5), integers(6)),
    "unique": call(lambda x: tf.unique(x)[1], integers(6)),
    "l2_normalize": call(lambda x: tf.math.l2_normalize(x, 1), apart(3, 4)),
    "sequence_mask": call(lambda x: tf.cast(tf.sequence_mask(x, 5), tf.float32), integers(6)),
    "batch_to_space": call(lambda x: tf.batch_to_space(x, [2, 2], [[0, 0], [0, 0]]), apart(4, 3, 4, 2)),
    "depthwise dilation": call(
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME", dilations=[2, 2]),
        apart(2, 6, 6, 2),
        apart(3, 3, 2, 1),
    ),
    "xlog1py": call(lambda x: tf.math.xlog1py(x, tf.abs(x)), apart(3, 4)),
    "rint": call(lambda x: tf.math.rint(x) * x, apart(3, 4)),
}


def squared(x: tf.Tensor) -> tf.Tensor:
    return x * x


LOOPS = {
    "map_fn": call(lambda x: tf.map_fn(lambda v: tf.sin(v) * v, x), unit(3, 4)),
    "scan of TensorFlow": call(lambda x: tf.scan(lambda a, v: tf.tanh(a + v), x), unit(3, 4)),
    "foldl": call(lambda x: tf.foldl(lambda a, v: a * v + v, x), unit(3, 4)),
    "while_loop with a weight": call(
        lambda x, w: tf.while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, tf.tanh(v @ w)), (0, x))[1],
        unit(3, 4),
        unit(4, 4),
    ),
    "nested loops": call(
        lambda x: tf.while_loop(
            lambda i, v: i < 2,
            lambda i, v: (i + 1, tf.while_loop(lambda j, u: j < 2, lambda j, u: (j + 1, tf.sin(u) * x), (0, v))[1]),
            (0, x),
        )[1],
        unit(3, 4),
    ),
    "loop with a condition": call(
        lambda x: tf.while_loop(
            lambda i, v: i < 3,
            lambda i, v: (i + 1, tf.cond(tf.reduce_sum(v) > 0.0, lambda: v * 0.5 - 0.3, lambda: v * v)),
            (0, x),
        )[1],
        unit(3, 4),
    ),
    "loop of floats": call(
        lambda x: tf.while_loop(lambda t, v: t < 1.0, lambda t, v: (t + 0.25, v + 0.25 * tf.cos(v)), (0.0, x))[1],
        unit(3, 4),
    ),
    "loop until data": call(
        lambda x: tf.stop_gradient(tf.while_loop(lambda v: tf.reduce_sum(v) < 9.0, lambda v: (v * 2.0,), (x,))[0]),
        positive(3),
    ),
    "case": call(
        lambda x: tf.case(
            [(tf.reduce_sum(x) > 2.0, lambda: x), (tf.reduce_sum(x) > 0.0, lambda: x * x)], lambda: tf.exp(x)
        ),
        unit(3, 4),
    ),
    "switch_case": call(
        lambda x: tf.switch_case(tf.cast(x[0, 0] > 0.0, tf.int32) + 1, [lambda: x, lambda: x * x, lambda: tf.exp(x)]),
        unit(3, 4),
    ),
    "TensorArray": call(lambda x: tf.TensorArray(tf.float32, 3).unstack(x).read(1) * 2.0, unit(3, 4)),
    "sequence of TensorArray": call(
        lambda x: tf.TensorArray(tf.float32, 2).write(0, x).write(1, tf.exp(x)).stack(), unit(3, 4)
    ),
}
FAMILIES: dict[str, dict[str, KerasCall]] = {
    "quantization": QUANTIZATION,
    "TensorFlow": TENSORFLOW,
    "TensorFlow's loops": LOOPS,
}
