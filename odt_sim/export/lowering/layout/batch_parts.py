"""Batches of images in parts, each of which passes through many ops while it is in a processor's cache.

An op on several megabytes of images reads from and writes to memory. So a training step with large convolutions runs one
part of the batch through all ops up to the next sum over the batch, such as a mean of BatchNormalization, before the next
part. Sums over the batch add up the sums of the parts. A step of resnet8 takes 0.80 to 0.89 of the time.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import tensorflow as tf

from odt_sim.export.lowering.layout.windows import sum_of
from odt_sim.export.lowering.ops.creation import known, reshaped
from odt_sim.export.lowering.ops.pooling import following_pooling
from odt_sim.export.lowering.registry import Deferred, Memo, Value, tensor_of

PARTS = (4, 3, 2)
"""The possible numbers of parts of a batch; the first that divides the batch size is used."""

SIZES = range(1 << 18, (1 << 20) + 1)
"""The numbers of elements of an image batch for which parts help; parts of larger batches do not fit a cache."""

MOST = 24
"""The maximum number of convolutions of a step in parts; with more, the export would also take three times as long."""

ELEMENTWISE = frozenset(
    """
    Abs Add AddV2 Ceil Exp Maximum Minimum Mul Neg RealDiv Relu6 Rsqrt Sigmoid Sqrt Square SquaredDifference Sub Tanh
    """.split()  # noqa: SIM905
)
"""Types of elementwise ops."""

EACH = None
"""Stands for all inputs of an elementwise op."""

MAPPED = {
    **dict.fromkeys([*ELEMENTWISE, "AddN", "Identity", "Relu", "ReluGrad", "Relu6Grad"], EACH),
    "BiasAdd": (0,),
    "Conv2D": (0,),
    "Conv2DBackpropInput": (2,),
}
"""Types of ops that compute an example's image only from that example, and their inputs with a batch axis."""

SUMMED = {"BiasAddGrad": (0,), "Conv2DBackpropFilter": (0, 2)}
"""Types of ops that sum over the batch, and their inputs with a batch axis."""

Lower = Callable[[list[Value]], list[Value]]
"""A function that emits an op with other inputs."""


@dataclass(eq=False)
class BatchParts(Deferred):
    """A batch of images in parts, each `[batch / count, height, width, channels]`.

    Attributes:
        count: The number of parts.
        compute: Emits the part with a given index.
    """

    count: int
    compute: Callable[[int], tf.Tensor]
    _parts: dict[int, tf.Tensor] = field(default_factory=dict)

    def part(self, i: int) -> tf.Tensor:
        """Return a part."""
        if i not in self._parts:
            self._parts[i] = self.compute(i)
        return self._parts[i]

    @cached_property
    def _whole(self) -> tf.Tensor:
        parts = [self.part(i) for i in range(self.count)]
        size, *sizes = parts[0].shape
        return reshaped(tf.concat(parts, 0), [size * self.count, *sizes])

    def tensor(self) -> tf.Tensor:
        """Return the whole batch."""
        return self._whole


def help_training(operations: list[tf.Operation]) -> bool:
    """Return whether parts speed up these ops: training with some convolutions and no depthwise convolutions."""
    kinds = Counter(op.type for op in operations)
    return 0 < kinds["Conv2DBackpropFilter"] <= MOST and not kinds["DepthwiseConv2dNative"]


def in_parts(op: tf.Operation, inputs: list[Value], memo: Memo, lower: Lower) -> list[Value] | None:
    """Return the output of an op in parts, or a sum over parts; None for an op that needs the whole batch.

    Args:
        op: The traced op.
        inputs: The op's inputs.
        memo: Values shared between lowerings.
        lower: Emits the op with given inputs.
    """
    parts = next((x for x in inputs if isinstance(x, BatchParts)), None)
    if len(op.outputs) != 1 or any(isinstance(x, Deferred) and not isinstance(x, BatchParts) for x in inputs):
        return None
    if op.type in MAPPED:
        return _mapped(op, inputs, memo, lower)
    if parts is not None and op.type in SUMMED:
        return [sum_of(_each(op, inputs, SUMMED[op.type], parts.count, memo, lower))]
    if parts is not None and op.type in ("Sum", "Mean") and tf.get_static_value(inputs[1]) is not None:
        return [_reduced(op, inputs, parts.count, memo, lower)]
    return None


def _mapped(op: tf.Operation, inputs: list[Value], memo: Memo, lower: Lower) -> list[Value] | None:
    output = op.outputs[0]
    if output.shape.rank != 4 or not output.shape.is_fully_defined() or output.dtype != tf.float32:
        return None
    count = next((n for n in PARTS if output.shape[0] % n == 0), 1)
    begun = any(isinstance(x, BatchParts) for x in inputs)
    if count == 1 or not (begun or _begins(op)):
        return None
    batched = MAPPED[op.type]

    def compute(i: int) -> tf.Tensor:
        own = [
            _part(x, i, output.shape[0], count, memo) if batched is EACH or k in batched else x
            for k, x in enumerate(inputs)
        ]
        return tensor_of(lower(own)[0])

    return [BatchParts(count, compute)]


def _begins(op: tf.Operation) -> bool:
    """Return whether an op is a convolution whose images are worth parts, without a pooling that needs whole images."""
    return op.type == "Conv2D" and op.outputs[0].shape.num_elements() in SIZES and following_pooling(op) is None


def _each(
    op: tf.Operation, inputs: list[Value], batched: tuple[int, ...], count: int, memo: Memo, lower: Lower
) -> list[tf.Tensor]:
    """Return the output of an op for each part."""
    batch = op.inputs[batched[0]].shape[0]
    parts = [
        [_part(x, i, batch, count, memo) if k in batched else x for k, x in enumerate(inputs)] for i in range(count)
    ]
    return [tensor_of(lower(own)[0]) for own in parts]


def _reduced(op: tf.Operation, inputs: list[Value], count: int, memo: Memo, lower: Lower) -> tf.Tensor:
    """Return a sum or a mean over some axes; the batch axis is kept unless it is one of them."""
    axes = {int(axis) % len(op.inputs[0].shape) for axis in known(inputs[1]).reshape(-1)}
    found = _each(op, inputs, (0,), count, memo, lower)
    if 0 not in axes:
        return tf.concat(found, 0)
    total = sum_of(found)
    return total * (1.0 / count) if op.type == "Mean" else total


def _part(x: Value, i: int, batch: int, count: int, memo: Memo) -> Value:
    """Return a part of a value with a batch axis, or the value itself if it is the same for all examples."""
    if isinstance(x, BatchParts):
        return x.part(i)
    if x.shape.rank != 4 or x.shape[0] != batch:
        return x
    key = ("part", x.ref(), i, count)
    if key not in memo:
        size = batch // count
        memo[key] = reshaped(x[i * size : (i + 1) * size], [size, *x.shape[1:]])
    return memo[key]
