"""Calls of TensorFlow's own ops over a grid of shapes, for each op type with a lowering."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, product
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

raw = tf.raw_ops
SHAPES = [(), (5,), (3, 4), (2, 3, 4), (2, 3, 1, 2), (2, 1, 2, 2, 3)]
KINKS = np.array([-7.0, -1.0, 0.0, 0.5, 1.0, 5.9, 6.0, 7.0, -1e-30, 1e-30, 0.25, -0.3], np.float32)
RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Call:
    """One call of an op.

    Attributes:
        function: A function of a tensor per input, which returns a tensor or a list of tensors.
        inputs: The inputs.
        tolerance: The absolute and relative tolerance against TensorFlow.
        others: Further values of the inputs for the same graph.
    """

    function: Callable[..., Any]
    inputs: tuple[NDArray[Any], ...]
    tolerance: float = 1e-6
    others: tuple[tuple[NDArray[Any], ...], ...] = ()

    def given(self, run: int) -> tuple[NDArray[Any], ...]:
        """Return the inputs of a run; runs beyond the last one repeat its inputs."""
        values = (self.inputs, *self.others)
        return values[run % len(values)]


def whole(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return integers: their products and sums are exact in float32, so both results must be equal bit for bit."""
    return RANDOM.integers(-4, 5, size=shape).astype(dtype)


def kinks(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return numbers at and between the kinks of activation functions."""
    return np.resize(KINKS, shape)


def _read(variable: tf.Variable) -> tf.Tensor:
    """Return zeros that depend on a variable, so that the graph contains it."""
    return tf.cast(0.0 * variable.read_value()[0, :2], tf.int32)


def each(function: Callable[..., Any], arguments: int = 1) -> list[Call]:
    """Return calls with tensors of every rank: `x` first, then a gradient."""
    return [Call(function, (kinks(shape), whole(*shape))[:arguments]) for shape in SHAPES]


def convolutions(call: Callable[..., Any], inputs: Callable[..., list[Any]], multiplied: bool = False) -> list[Call]:
    """Return calls of a convolution or its gradient: few and many channels, overlapping and separate windows."""
    grid = [((3, 3), 1, 1), ((2, 3), 2, 1), ((1, 1), 1, 1), ((5, 1), 1, 1), ((2, 2), 3, 1), ((3, 2), 1, 2)]
    grid = grid[:-1] if multiplied else grid  # TensorFlow's own gradients of a depthwise one take no dilation
    calls = []
    for ((kernel, stride, dilation), channels), padding in product(zip(grid, cycle((3, 6))), ("SAME", "VALID")):
        filters = [channels, 2] if multiplied else [channels, 4]
        settings = {"strides": [1, stride, stride, 1], "padding": padding, "dilations": [1, dilation, dilation, 1]}
        x, w = whole(2, 8, 7, channels), whole(*kernel, *filters)
        calls.append(Call(lambda *given, settings=settings: call(*given, settings), tuple(inputs(x, w, settings)), 0.0))
    return calls


def of_gradient(forward: Callable[..., Any], *kept: int) -> Callable[..., list[Any]]:
    """Return a function that creates a gradient op's inputs: those in `kept`, and a gradient of the output's shape."""

    def inputs(x: Any, w: Any, settings: Any) -> list[Any]:
        return [*((x, w)[i] for i in kept), whole(*forward(x, w, settings).shape)]

    return inputs


def conv2d(x: Any, w: Any, settings: Any) -> Any:
    return raw.Conv2D(input=x, filter=w, **settings)


def conv2d_filter(x: Any, w: Any, dy: Any, settings: Any) -> Any:
    return raw.Conv2DBackpropFilter(input=x, filter_sizes=w.shape, out_backprop=dy, **settings)


def conv2d_input(x: Any, w: Any, dy: Any, settings: Any) -> Any:
    return raw.Conv2DBackpropInput(input_sizes=x.shape, filter=w, out_backprop=dy, **settings)


def depthwise(x: Any, w: Any, settings: Any) -> Any:
    return raw.DepthwiseConv2dNative(input=x, filter=w, **settings)


def depthwise_filter(x: Any, w: Any, dy: Any, settings: Any) -> Any:
    return raw.DepthwiseConv2dNativeBackpropFilter(input=x, filter_sizes=w.shape, out_backprop=dy, **settings)


def depthwise_input(x: Any, w: Any, dy: Any, settings: Any) -> Any:
    return raw.DepthwiseConv2dNativeBackpropInput(input_sizes=x.shape, filter=w, out_backprop=dy, **settings)


def poolings(call: Callable[..., Any], pool: Any, with_gradient: bool, tolerance: float) -> list[Call]:
    """Return calls of a pooling or its gradient, on three values only: most windows tie."""
    grid = [((2, 2), 2), ((3, 3), 3), ((3, 3), 2), ((2, 1), 1), ((1, 2), 3)]
    calls = []
    for (size, stride), padding in product(grid, ("SAME", "VALID")):
        settings = {"ksize": [1, *size, 1], "strides": [1, stride, stride, 1], "padding": padding}
        x = RANDOM.integers(-1, 2, size=(2, 7, 6, 3)).astype(np.float32)
        inputs = [x, whole(*pool(x, **settings).shape)] if with_gradient else [x]
        calls.append(Call(lambda *given, settings=settings: call(*given, **settings), tuple(inputs), tolerance))
    return calls


def max_pool(x: Any, **settings: Any) -> Any:
    return raw.MaxPool(input=x, **settings)


def max_pool_grad(x: Any, dy: Any, **settings: Any) -> Any:
    return raw.MaxPoolGrad(orig_input=x, orig_output=max_pool(x, **settings), grad=dy, **settings)


def avg_pool(x: Any, **settings: Any) -> Any:
    return raw.AvgPool(value=x, **settings)


def avg_pool_grad(dy: Any, **settings: Any) -> Any:
    return raw.AvgPoolGrad(orig_input_shape=[2, 7, 6, 3], grad=dy, **settings)


def reductions(op: Any) -> list[Call]:
    """Return calls over each set of axes of some shapes, few and many numbers."""
    shapes: list[tuple[int, ...]] = [(5,), (3, 4), (2, 3, 4), (2, 3, 1, 2), (2, 1, 2, 2, 3), (20, 30, 2)]
    axes: list[list[int]] = [[0], [-1], [0, 1], [1, 2], [0, 2], [0, 1, 2, 3]]
    return [
        Call(lambda x, a=a, keep=keep: op(input=x, axis=a, keep_dims=keep), (whole(*shape),))
        for shape, a, keep in product(shapes, axes, (True, False))
        if max(a) < len(shape)
    ]


def products(op: Any, shapes: list[tuple[tuple[int, ...], tuple[int, ...]]], *names: str) -> list[Call]:
    """Return calls of a matrix product, its operands as they are and transposed."""
    calls = []
    for (a, b), turn_a, turn_b in product(shapes, (True, False), (True, False)):
        settings = dict(zip(names, (turn_a, turn_b), strict=True))
        left, right = whole(*a), whole(*b)
        inputs = (left.swapaxes(-1, -2) if turn_a else left, right.swapaxes(-1, -2) if turn_b else right)
        calls.append(Call(lambda a, b, settings=settings: op(a, b, settings), inputs, 0.0))
    return calls


def matmul(a: Any, b: Any, settings: Any) -> Any:
    return raw.MatMul(a=a, b=b, **settings)


def batch_matmul(a: Any, b: Any, settings: Any) -> Any:
    return raw.BatchMatMulV2(x=a, y=b, **settings)


BORDERS = ((False, False), (False, True), (True, False))  # align_corners, half_pixel_centers


def resizings(grad: Any, shape: Callable[..., Any], borders: Any = BORDERS) -> list[Call]:
    sizes = [((3, 4), (6, 8)), ((5, 4), (3, 9)), ((1, 2), (4, 1))]
    calls = []
    for (old, new), (corners, centers) in product(sizes, borders):
        settings = {"align_corners": corners, "half_pixel_centers": centers}
        function = lambda dy, old=old, settings=settings: grad(dy, shape(old), settings)  # noqa: E731
        calls.append(Call(function, (whole(2, *new, 3),)))
    return calls


def bilinear_grad(dy: Any, original: Any, settings: Any) -> Any:
    return raw.ResizeBilinearGrad(grads=dy, original_image=original, **settings)


def nearest_grad(dy: Any, size: Any, settings: Any) -> Any:
    return raw.ResizeNearestNeighborGrad(grads=dy, size=size, **settings)


def slices() -> list[Call]:
    """Return calls of the gradient of a slice, made by TensorFlow's own differentiation."""
    chosen: list[Callable[[Any], Any]] = [
        lambda x: x[:, 1:3, :-2],
        lambda x: x[::2, 3::-2, 1:6:3],
        lambda x: x[1, ..., -1],
        lambda x: x[:, tf.newaxis, 2:],
        lambda x: x[:, 5:],
        lambda x: x[-1],
    ]
    return [Call(lambda x, part=part: tf.gradients(part(x) * part(x), x)[0], (whole(4, 5, 7),), 0.0) for part in chosen]


def scatters(op: Any) -> list[Call]:
    """Return calls that write to rows of a variable, some of them twice, and return all of its rows."""
    calls = []
    for shape, rows in product([(6, 3), (5,), (4, 2, 3)], ([0, 2, 2, 3], [1])):
        variable = tf.Variable(whole(*shape))

        def function(indices: Any, updates: Any, variable: tf.Variable = variable) -> Any:
            op(resource=variable.handle, indices=indices, updates=updates)
            return variable.read_value()

        calls.append(Call(function, (np.array(rows, np.int32), whole(len(rows), *shape[1:])), 0.0))
    return calls


def segment_sums() -> list[Call]:
    """Return sums of rows by index, with repeated and negative indices, also for gathered rows."""

    def of_gathered(x: Any, places: Any) -> Any:
        rows = tf.gather(x, places)
        return raw.UnsortedSegmentSum(data=rows * rows, segment_ids=tf.reshape(places, places.shape), num_segments=6)

    def of_rows(rows: Any, places: Any) -> Any:
        return raw.UnsortedSegmentSum(data=rows, segment_ids=places, num_segments=6)

    given = [
        (np.array(own, np.int32), shape) for own in ([2, 0, 2], [[5, 5], [1, 5]]) for shape in ((6,), (6, 3), (6, 2, 3))
    ]
    calls = [Call(of_gathered, (whole(*shape), places), 0.0) for places, shape in given]
    return [*calls, Call(of_rows, (whole(4, 3), np.array([1, -1, 0, 1], np.int32)), 0.0)]


def writes(op: Any) -> list[Call]:
    """Return calls that write to a variable twice, and return its values before, between and after."""
    variable = tf.Variable(whole(2, 3))

    def function(x: Any, y: Any) -> list[Any]:
        values = [variable.read_value()]
        for value in (x, y):
            op(resource=variable.handle, value=value)
            values.append(variable.read_value())
        return values

    return [Call(function, (whole(2, 3), whole(2, 3)), 0.0)]


def cross_entropies(op: Any, sparse: bool) -> list[Call]:
    calls = []
    for rows, classes in [(1, 2), (4, 3), (7, 11)]:
        logits = RANDOM.normal(size=(rows, classes)).astype(np.float32)
        logits[0, 0] = 1000.0
        labels = RANDOM.integers(0, classes, rows).astype(np.int32)
        given = labels if sparse else RANDOM.dirichlet(np.ones(classes), rows).astype(np.float32)
        calls.append(Call(lambda z, y: list(op(features=z, labels=y)), (logits, given)))
    return calls


def of_seeds(function: Callable[[Any], Any], tolerance: float, *seeds: tuple[int, int]) -> Call:
    """Return a call of a function of a seed."""
    first, *others = [(np.array(seed, np.int32),) for seed in seeds]
    return Call(function, first, tolerance, tuple(others))


def uniforms(seeds: list[tuple[int, int]], shapes: list[tuple[int, ...]]) -> list[Call]:
    return [
        of_seeds(lambda seed, shape=shape: tf.random.stateless_uniform(shape, seed), 0.0, *seeds) for shape in shapes
    ]


def draws(function: Callable[..., Any], tolerance: float = 0.0) -> list[Call]:
    """Return calls of a random op with a seed: numbers in groups of four, and not."""
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 3, 4)]
    return [
        of_seeds(lambda seed, shape=shape: function(shape, seed), tolerance, (3, 4), (2**31 - 3, 12345))
        for shape in shapes
    ]


def moments(function: Callable[..., Any], tolerance: float) -> list[Call]:
    """Return calls that return the mean and deviation of many random numbers, and the share below 1."""

    def measured(seed: Any) -> list[Any]:
        numbers = tf.cast(function([100, 200], seed), tf.float32)
        return [
            tf.reduce_mean(numbers),
            tf.math.reduce_std(numbers),
            tf.reduce_mean(tf.cast(numbers < 1.0, tf.float32)),
        ]

    return [of_seeds(measured, tolerance, (3, 4), (5, 0))]


def transforms(op: Any, fills: tuple[str, ...], **settings: Any) -> list[Call]:
    """Return calls that rotate, shift, stretch and shear images beyond their borders, equally and individually.

    The calls cover all pairs of a kind of transformation, an interpolation and a fill mode.
    """
    rows = np.array(
        [
            [0.8, -0.6, 1.3, 0.6, 0.8, -2.2, 0.0, 0.0],
            [1.7, 0.1, -9.6, 0.0, 2.3, 6.7, 0.01, -0.02],
            [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
        ],
        np.float32,
    )
    return [
        Call(
            lambda x, t, given=given: op(images=x, transforms=t, output_shape=[4, 6], **settings, **given),
            (whole(3, 5, 4, 2), (rows, rows[:1])[(i + j) % 2]),
            1e-5,
        )
        for (i, interpolation), (j, fill) in product(enumerate(("NEAREST", "BILINEAR")), enumerate(fills))
        for given in [{"interpolation": interpolation, "fill_mode": fill}]
    ]


def equations(op: Any, inputs: int) -> list[Call]:
    """Return linear equations, some with a zero pivot."""
    tilted = np.array([[[0, 2, 1], [1, 0, 3], [4, 1, 0]], [[1, 2, 0], [2, 4, 1], [0, 1, 5]]], np.float32)
    regular = whole(2, 8, 8) + 20 * np.eye(8, dtype=np.float32)
    return [
        Call(lambda *given, adjoint=adjoint: op(*given, adjoint), (a, whole(*a.shape[:-1], 2))[:inputs], 1e-5)
        for a, adjoint in product((tilted, regular), (False, True))
    ]


def scalings(gradient: bool) -> list[Call]:
    """Return calls that resize images with a kernel, to smaller and larger sizes, or their gradients."""
    calls = []
    for kernel, size in product(("triangle", "lanczos3"), ((3, 4), (9, 7))):
        scale, zero = [size[0] / 6, size[1] / 5], [0.0, 0.0]
        own = {"scale": scale, "translation": zero, "kernel_type": kernel, "antialias": True}
        forward = lambda x, size=size, own=own: raw.ScaleAndTranslate(images=x, size=size, **own)  # noqa: E731
        backward = lambda x, dy, own=own: raw.ScaleAndTranslateGrad(grads=dy, original_image=x, **own)  # noqa: E731
        x = whole(2, 6, 5, 3)
        calls.append(Call(backward if gradient else forward, (x, whole(2, *size, 3))[: 1 + gradient], 1e-5))
    return calls


def floor_divisions() -> list[Call]:
    numbers, divisors = np.array([[-7, -6, 0, 6, 7]] * 2), np.array([[2], [-3]])
    kinds = (np.int32, np.int64, np.float32)
    return [
        Call(lambda a, b: raw.FloorDiv(x=a, y=b), (numbers.astype(kind), divisors.astype(kind)), 0.0) for kind in kinds
    ]


TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([3, 7, -2], [1, 0, 5], tf.int64, tf.int64), 9)


def look_ups() -> list[Call]:
    return [Call(lambda x: TABLE.lookup(tf.cast(x, tf.int64)), (np.array([[3, 4], [-2, 7]], np.int32),), 0.0)]


def unit_matrices(*shapes: tuple[int, int]) -> list[Call]:
    return [Call(lambda x, shape=shape: x @ tf.eye(*shape), (whole(2, 4),), 0.0) for shape in shapes]


def fused_norms(gradient: bool) -> list[Call]:
    """Return calls of the fused batch normalization, or of its gradient, in training and in inference."""
    x, scale, offset = whole(3, 4, 2, 5), positive((5,)), whole(5)
    mean, variance = whole(5), positive((5,))
    reserve = np.zeros(0, np.float32)  # which a CPU leaves empty
    calls = []
    for training, factor in ((True, 1.0), (True, 0.25), (False, 1.0)):
        settings = {"is_training": training, "epsilon": 0.01} | ({} if gradient else {"exponential_avg_factor": factor})
        forward = lambda x, scale, offset, *given, settings=settings: raw.FusedBatchNormV3(  # noqa: E731
            x=x, scale=scale, offset=offset, mean=given[0], variance=given[1], **settings
        )
        backward = lambda dy, x, scale, *given, settings=settings: raw.FusedBatchNormGradV3(  # noqa: E731
            y_backprop=dy, x=x, scale=scale, reserve_space_1=given[0], reserve_space_2=given[1], reserve_space_3=given[2],
            **settings,
        )  # fmt: skip
        if gradient:
            calls.append(
                Call(
                    lambda *given, call=backward: list(call(*given))[:3],
                    (whole(*x.shape), x, scale, mean, variance, reserve),
                    1e-4,
                )
            )
        else:
            old = (reserve, reserve) if training and factor == 1.0 else (mean, variance)
            calls.append(Call(lambda *given, call=forward: list(call(*given))[:3], (x, scale, offset, *old), 1e-5))
    return calls


def paddings(op: Any) -> list[Call]:
    """Return calls that pad some axes."""
    grid = [((3,), [[1, 2]]), ((2, 3, 4), [[0, 0], [1, 2], [0, 0]]), ((2, 1, 3, 4), [[0, 0], [0, 1], [2, 0], [0, 0]])]
    grid += [((2, 3, 4), [[1, 0], [0, 0], [0, 0]]), ((2, 3, 4), [[0, 0], [1, 0], [0, 3]])]
    return [Call(lambda x, around=around: op(x, around), (whole(*shape),), 0.0) for shape, around in grid]


def repetitions(op: Any, shape: list[int]) -> list[Call]:
    """Return calls that repeat values of two types along some axes."""
    settings: list[list[int]] = [[2, 3, 2], [5, 3, 1]]
    kinds = (np.float32, np.int32)
    return [Call(lambda x, t=t: op(x, t), (whole(*shape, dtype=k),), 0.0) for t, k in product(settings, kinds)]


def positive(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.resize(np.array([0.1, 0.5, 1.0, 2.0, 30.0], np.float32), shape)


def at_zero(root: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return roots and their gradients at zero, with zero and nonzero incoming gradients."""
    return np.array([root, root, 1.0], np.float32), np.array([0.0, 1.0, 1.0], np.float32)


def of_positive(function: Callable[..., Any], arguments: int = 1) -> list[Call]:
    return [Call(function, (positive(shape), whole(*shape))[:arguments]) for shape in SHAPES]


FROM_ZERO = np.array([0.0, 1e-30, 0.25, 1e30], np.float32)
BIASED: list[tuple[int, ...]] = [(3, 4), (2, 3, 4), (2, 3, 2, 4), (20, 30, 4)]
BIASED_SECOND: list[tuple[int, ...]] = [(2, 3, 5), (2, 3, 8, 6), (20, 3, 30)]
SECOND = {"data_format": "NCHW"}
BATCHES = [((2, 3, 4), (2, 4, 5)), ((2, 2, 3, 4), (2, 2, 4, 1)), ((3, 2, 4), (1, 4, 5)), ((3, 1), (2, 1, 4))]
OPS: dict[str, Callable[[], list[Call]]] = {
    "AssignAddVariableOp": lambda: writes(raw.AssignAddVariableOp),
    "AssignSubVariableOp": lambda: writes(raw.AssignSubVariableOp),
    "AssignVariableOp": lambda: writes(raw.AssignVariableOp),
    "AddN": lambda: [Call(lambda *x: raw.AddN(inputs=x), tuple(whole(2, 3) for _ in range(n)), 0.0) for n in (1, 2, 5)],
    "AvgPoolGrad": lambda: [
        Call(call.function, call.inputs[1:], 1e-6) for call in poolings(avg_pool_grad, avg_pool, True, 1e-6)
    ],
    "BatchMatMulV2": lambda: products(batch_matmul, BATCHES, "adj_x", "adj_y"),
    "BatchMatMulV3": lambda: [
        Call(
            lambda a, b: raw.BatchMatMulV3(x=a, y=b, Tout=tf.int32),
            (whole(2, 3, 4, dtype=np.int8), whole(2, 4, 5, dtype=np.int8)),
            0.0,
        )
    ],
    "BiasAdd": lambda: [
        *(Call(lambda x, b: raw.BiasAdd(value=x, bias=b), (whole(*s), whole(4)), 0.0) for s in BIASED),
        *(
            Call(lambda x, b: raw.BiasAdd(value=x, bias=b, **SECOND), (kinks(s), kinks((3,))), 0.0)
            for s in BIASED_SECOND
        ),
    ],
    "BiasAddGrad": lambda: [
        *(Call(lambda dy: raw.BiasAddGrad(out_backprop=dy), (whole(*s),), 0.0) for s in BIASED),
        *(Call(lambda dy: raw.BiasAddGrad(out_backprop=dy, **SECOND), (kinks(s),)) for s in BIASED_SECOND),
    ],
    "BitwiseAnd": lambda: [
        Call(lambda x: raw.BitwiseAnd(x=x, y=np.int32(-(2**31))), (np.array([-7, 0, 7, -(2**31)], np.int32),), 0.0)
    ],
    "BroadcastTo": lambda: repetitions(lambda x, times: raw.BroadcastTo(input=x, shape=[4, *times]), [1, 3, 1]),
    "Conv2D": lambda: convolutions(conv2d, lambda x, w, _: [x, w]),
    "Conv2DBackpropFilter": lambda: convolutions(conv2d_filter, of_gradient(conv2d, 0, 1)),
    "Conv2DBackpropInput": lambda: convolutions(conv2d_input, of_gradient(conv2d, 0, 1)),
    "DepthwiseConv2dNative": lambda: convolutions(depthwise, lambda x, w, _: [x, w], multiplied=True),
    "DepthwiseConv2dNativeBackpropFilter": lambda: convolutions(depthwise_filter, of_gradient(depthwise, 0, 1), True),
    "DepthwiseConv2dNativeBackpropInput": lambda: convolutions(depthwise_input, of_gradient(depthwise, 0, 1), True),
    "EluGrad": lambda: each(lambda x, dy: raw.EluGrad(gradients=dy, outputs=tf.nn.elu(x)), 2),
    "Erf": lambda: each(lambda x: raw.Erf(x=x)),
    "Erfc": lambda: each(lambda x: raw.Erfc(x=x)),
    "Expm1": lambda: each(lambda x: raw.Expm1(x=x)),
    "Fill": lambda: repetitions(lambda x, times: raw.Fill(dims=times, value=x), []),
    "FloorDiv": floor_divisions,
    "FusedBatchNormGradV3": lambda: fused_norms(gradient=True),
    "FusedBatchNormV3": lambda: fused_norms(gradient=False),
    "HSVToRGB": lambda: [
        Call(lambda x: raw.HSVToRGB(images=x), (RANDOM.uniform(size=(2, 5, 4, 3)).astype(np.float32),))
    ],
    "IdentityN": lambda: each(lambda x, y: list(raw.IdentityN(input=[x, y])), 2),
    "ImageProjectiveTransformV2": lambda: transforms(raw.ImageProjectiveTransformV2, ("CONSTANT", "REFLECT")),
    "ImageProjectiveTransformV3": lambda: transforms(
        raw.ImageProjectiveTransformV3, ("CONSTANT", "REFLECT", "WRAP", "NEAREST"), fill_value=7.0
    ),
    "Inv": lambda: of_positive(lambda x: raw.Inv(x=x)),
    "InvGrad": lambda: of_positive(lambda y, dy: raw.InvGrad(y=y, dy=dy), 2),
    "IsFinite": lambda: each(lambda x: raw.IsFinite(x=raw.Log(x=x))),
    "L2Loss": lambda: each(lambda x: raw.L2Loss(t=x)),
    "LeakyReluGrad": lambda: each(lambda x, dy: raw.LeakyReluGrad(gradients=dy, features=x, alpha=0.3), 2),
    "Log1p": lambda: of_positive(lambda x: raw.Log1p(x=x)),
    "LookupTableFindV2": look_ups,
    "MatMul": lambda: products(matmul, [((3, 4), (4, 5)), ((1, 4), (4, 1))], "transpose_a", "transpose_b"),
    "MatrixDiagV3": lambda: unit_matrices((4, 4)),
    "MatrixInverse": lambda: equations(lambda a, adjoint: raw.MatrixInverse(input=a, adjoint=adjoint), 1),
    "MatrixSetDiagV3": lambda: unit_matrices((4, 3), (4, 6)),
    "MatrixSolve": lambda: equations(lambda a, b, adjoint: raw.MatrixSolve(matrix=a, rhs=b, adjoint=adjoint), 2),
    "MaxPool": lambda: poolings(max_pool, max_pool, False, 0.0),
    "MaxPoolGrad": lambda: poolings(max_pool_grad, max_pool, True, 0.0),
    "Mean": lambda: reductions(raw.Mean),
    "OnesLike": lambda: each(lambda x: raw.OnesLike(x=x)),
    "PreventGradient": lambda: each(lambda x: raw.PreventGradient(input=x)),
    "Range": lambda: [Call(lambda x: raw.Range(start=x, limit=7, delta=2), (np.array(n, np.int32),)) for n in (-2, 3)],
    "RGBToHSV": lambda: [
        Call(lambda x: raw.RGBToHSV(images=x), (np.array(list(product((0.0, 0.25, 1.0), repeat=3)), np.float32),))
    ],
    "Reciprocal": lambda: of_positive(lambda x: raw.Reciprocal(x=x)),
    "ReciprocalGrad": lambda: of_positive(lambda y, dy: raw.ReciprocalGrad(y=y, dy=dy), 2),
    "Relu": lambda: each(lambda x: raw.Relu(features=x)),
    "Relu6Grad": lambda: each(lambda x, dy: raw.Relu6Grad(gradients=dy, features=x), 2),
    "ReluGrad": lambda: each(lambda x, dy: raw.ReluGrad(gradients=dy, features=x), 2),
    "Reshape": lambda: [
        Call(lambda x, s=s: raw.Reshape(tensor=x, shape=s), (whole(2, 6),)) for s in ([12], [-1, 3, 2])
    ],
    "ReadVariableOp": lambda: writes(raw.AssignVariableOp),
    "ResizeArea": lambda: [
        Call(lambda x, size=size: raw.ResizeArea(images=x, size=size), (whole(2, 6, 5, 3),))
        for size in ((3, 4), (9, 5))
    ],
    "ResizeBicubic": lambda: resizings(
        lambda x, size, own: raw.ResizeBicubic(images=x, size=size, **own), list, ((False, False), (False, True))
    ),
    "ResizeBicubicGrad": lambda: resizings(
        lambda dy, x, own: raw.ResizeBicubicGrad(grads=dy, original_image=x, **own),
        lambda size: tf.zeros([2, *size, 3]),
        ((False, False), (False, True)),
    ),
    "ResizeBilinearGrad": lambda: resizings(bilinear_grad, lambda size: tf.zeros([2, *size, 3])),
    "ResizeNearestNeighborGrad": lambda: resizings(nearest_grad, list),
    "ResourceScatterAdd": lambda: scatters(raw.ResourceScatterAdd),
    "ResourceScatterSub": lambda: scatters(raw.ResourceScatterSub),
    "Rsqrt": lambda: [
        *(Call(lambda x: raw.Rsqrt(x=x), (positive(shape),)) for shape in SHAPES),
        Call(lambda x: raw.Rsqrt(x=x), (FROM_ZERO,)),
    ],
    "RsqrtGrad": lambda: [
        *of_positive(lambda y, dy: raw.RsqrtGrad(y=y, dy=dy), 2),
        Call(lambda y, dy: raw.RsqrtGrad(y=y, dy=dy), at_zero(np.inf)),
    ],
    "ScaleAndTranslate": lambda: scalings(gradient=False),
    "ScaleAndTranslateGrad": lambda: scalings(gradient=True),
    "Selu": lambda: each(lambda x: raw.Selu(features=x)),
    "SeluGrad": lambda: each(lambda x, dy: raw.SeluGrad(gradients=dy, outputs=tf.nn.selu(x - 0.1)), 2),
    "SigmoidGrad": lambda: each(lambda y, dy: raw.SigmoidGrad(y=y / 8, dy=dy), 2),
    "SoftmaxCrossEntropyWithLogits": lambda: cross_entropies(raw.SoftmaxCrossEntropyWithLogits, sparse=False),
    "Sqrt": lambda: [
        *(Call(lambda x: raw.Sqrt(x=x), (positive(shape),)) for shape in SHAPES),
        Call(lambda x: 3.0 / raw.Sqrt(x=x), (FROM_ZERO,)),
    ],
    "Softplus": lambda: each(lambda x: raw.Softplus(features=x)),
    "SoftplusGrad": lambda: each(lambda x, dy: raw.SoftplusGrad(gradients=dy, features=x), 2),
    "Softsign": lambda: each(lambda x: raw.Softsign(features=x)),
    "SoftsignGrad": lambda: each(lambda x, dy: raw.SoftsignGrad(gradients=dy, features=x), 2),
    "SparseSoftmaxCrossEntropyWithLogits": lambda: cross_entropies(
        raw.SparseSoftmaxCrossEntropyWithLogits, sparse=True
    ),
    "SqrtGrad": lambda: [
        *of_positive(lambda y, dy: raw.SqrtGrad(y=y, dy=dy), 2),
        Call(lambda y, dy: raw.SqrtGrad(y=y, dy=dy), at_zero(0.0)),
    ],
    "StatelessMultinomial": lambda: moments(
        lambda shape, seed: tf.random.stateless_categorical(
            np.log(np.float32([[0.1, 0.2, 0.7]] * 100)), shape[1], seed
        ),
        0.02,
    ),
    "StatelessRandomGammaV3": lambda: [
        call
        for alpha in (0.3, 1.0, 5.0)
        for call in moments(lambda shape, seed, alpha=alpha: tf.random.stateless_gamma(shape, seed, alpha), 0.05)
    ],
    "StatelessRandomGetKeyCounter": lambda: uniforms([(0, 0), (5, 7), (2**31 - 3, 12345), (-4, 9)], [(5,)]),
    "StatelessRandomNormalV2": lambda: draws(lambda shape, seed: tf.random.stateless_normal(shape, seed), 2e-6),
    "StatelessRandomUniformFullIntV2": lambda: draws(
        lambda shape, seed: tf.random.stateless_uniform(shape, seed, None, None, tf.int32)
    ),
    "StatelessRandomUniformIntV2": lambda: [
        call
        for kind in (tf.int32, tf.int64)
        for call in draws(lambda shape, seed, kind=kind: tf.random.stateless_uniform(shape, seed, -5, 1000, kind))
    ],
    "StatelessRandomUniformV2": lambda: uniforms([(3, 4)], [(), (2, 3, 4)]),
    "StatelessTruncatedNormalV2": lambda: moments(
        lambda shape, seed: tf.random.stateless_truncated_normal(shape, seed), 0.02
    ),
    "StopGradient": lambda: each(lambda x: tf.stop_gradient(x)),
    "StridedSliceGrad": slices,
    "Sum": lambda: reductions(raw.Sum),
    "Pad": lambda: paddings(lambda x, around: raw.Pad(input=x, paddings=around)),
    "PadV2": lambda: paddings(lambda x, around: raw.PadV2(input=x, paddings=around, constant_values=7.0)),
    "TanhGrad": lambda: each(lambda y, dy: raw.TanhGrad(y=y / 8, dy=dy), 2),
    "Tile": lambda: [
        *repetitions(lambda x, times: raw.Tile(input=x, multiples=times), [2, 3, 1]),
        *(Call(lambda x: raw.Tile(input=x, multiples=[1, 1, 4]), (whole(2, 3, n),), 0.0) for n in (1, 2)),
    ],
    "VariableShape": lambda: [
        Call(lambda x, v=v: x + raw.VariableShape(input=v.handle) + _read(v), (np.array([1, 2], np.int32),))
        for v in (tf.Variable(whole(2, 3)),)
    ],
    "Xdivy": lambda: each(lambda x, y: raw.Xdivy(x=x, y=y), 2),
    "UnsortedSegmentSum": segment_sums,
    "Xlogy": lambda: each(lambda x, y: raw.Xlogy(x=x, y=y * y), 2),
}
