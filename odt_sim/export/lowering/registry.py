"""The op types that can be emitted for TFLite: unchanged, or through a lowering."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import tensorflow as tf


class Deferred(ABC):
    """A value that is not computed yet, because some lowerings need only a part of it."""

    @abstractmethod
    def tensor(self) -> tf.Tensor:
        """Return the complete value."""


Value = Any
"""A `tf.Tensor` or a `Deferred`."""


def tensor_of(value: Value) -> tf.Tensor:
    """Return a value as a tensor."""
    return value.tensor() if isinstance(value, Deferred) else value


Memo = dict[Hashable, Any]
"""Values shared between the lowerings of one graph, such as the joined columns of a convolution's input."""

Lowering = Callable[[tf.Operation, list[Value], Memo], list[Value]]
"""A function from a traced op (its attributes and static shapes) and its new inputs to its new outputs."""

LOWERINGS: dict[str, Lowering] = {}

TAKES_DEFERRED: set[str] = set()
"""Op types whose lowering accepts `Deferred` inputs; all others receive tensors."""

KEPT = frozenset(
    """
    Const Identity Slice Squeeze ExpandDims Cast Shape ZerosLike Unpack Split SplitV ConcatV2 ConcatOffset
    StridedSlice Transpose
    Add AddV2 Sub Mul RealDiv DivNoNan FloorMod Maximum Minimum Neg Abs Sign
    Floor Ceil Round Sin Cos Cumsum OneHot TopKV2 ScatterNd GatherNd MirrorPad Where
    BitwiseXor DepthToSpace SpaceToDepth ArgMin UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd SegmentSum
    ReverseSequence Unique XlaDynamicUpdateSlice
    Square SquaredDifference Pow Exp Log
    Max Min Prod Select SelectV2 Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot Any All
    Tanh Sigmoid Relu6 LeakyRelu Elu Softmax LogSoftmax AvgPool
    Bitcast EnsureShape ResizeBilinear ResizeNearestNeighbor ReverseV2 GatherV2 ArgMax
    """.split()  # noqa: SIM905
)
"""Op types with a built-in TFLite kernel, emitted unchanged."""

UNKNOWN_TYPES = (tf.float16, tf.bfloat16, tf.float64, tf.complex64, tf.complex128, tf.string)
"""Types that few TFLite kernels support."""

_PYTHON = "write it with TensorFlow or Keras ops instead of Python"
_STRINGS = "do this in the data, before the model, and pass the numbers to the model"
_ALGEBRA = "use keras.ops.cholesky, solve or inv, or compute it in the data, before the model"
_CTC = 'for CTC, give the loss "ctc", or call odt_sim.export.keras.ctc.ctc(y, logits) in your own function'

INSTEAD = {
    "StatelessRandomBinomial": "compare keras.random.uniform with the probability, and sum over the counts",
    "While": "write the loop with tf.while_loop or keras.ops",
    "CTCLoss": _CTC,
    "Empty": _CTC,  # the first op of TensorFlow's ctc_loss
    "CTCGreedyDecoder": "decode the model's outputs outside the model",
    "Eig": _ALGEBRA,
    "LogMatrixDeterminant": _ALGEBRA,
    "MatrixDeterminant": _ALGEBRA,
    "Qr": _ALGEBRA,
    "SelfAdjointEigV2": _ALGEBRA,
    "Svd": _ALGEBRA,
    "AsString": _STRINGS,
    "SparseCross": _STRINGS,
    "StringToHashBucketFast": _STRINGS,
    "EagerPyFunc": _PYTHON,
    "PyFunc": _PYTHON,
}
"""The alternative to each op type without a lowering."""


class Refusal(Exception):  # noqa: N818 - not an error of its own: becomes an ExportError that names the layer
    """An op cannot be lowered exactly; the message says why and what to use instead."""


def lowers(*op_types: str, deferred: bool = False) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of op types.

    Args:
        op_types: The op types.
        deferred: Whether the function accepts `Deferred` inputs.
    """

    def register(function: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(op_types, function))
        TAKES_DEFERRED.update(op_types if deferred else ())
        return function

    return register


def computes(*op_types: str) -> Callable[[Callable[..., tf.Tensor]], Callable[..., tf.Tensor]]:
    """Register a formula, from an op's input tensors to its only output, as the lowering of op types."""

    def register(formula: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        lowers(*op_types)(lambda op, inputs, memo: [formula(*inputs)])
        return formula

    return register


def computes_by(formulas: Mapping[str, Callable[..., tf.Tensor]]) -> None:
    """Register the formula of each op type, see `computes`."""
    for op_type, formula in formulas.items():
        computes(op_type)(formula)


def unknown(op: tf.Operation) -> Refusal:
    """Return the refusal of an op that is neither lowered nor kept."""
    return Refusal(
        f"the op {op.type} has no TFLite built-in kernel and no lowering; "
        f"{INSTEAD.get(op.type, 'use another layer or setting')}, or add a lowering in odt_sim/export/lowering"
    )
