"""Which op types can be emitted for TFLite: as they are, or through a lowering."""

from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

Memo = dict[Hashable, Any]
"""What the lowerings of one graph share, such as the im2col columns of a convolution's forward and filter gradient."""

Lowering = Callable[[tf.Operation, list[tf.Tensor], Memo], list[tf.Tensor]]
"""From a traced op (its attributes and static shapes) and its new inputs to its new outputs."""

LOWERINGS: dict[str, Lowering] = {}

KEPT = frozenset(
    """
    Const Identity Reshape Squeeze ExpandDims Cast Shape Fill Tile Pack ConcatV2 StridedSlice Slice Transpose Pad PadV2
    ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp
    Add AddV2 AddN Sub Mul RealDiv DivNoNan FloorDiv Maximum Minimum Neg Abs Sign Square SquaredDifference Sqrt Rsqrt Pow Exp Log
    Sum Mean Max Min Prod Select SelectV2 Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalNot
    BiasAdd Relu Tanh Sigmoid Softmax LogSoftmax MaxPool AvgPool SpaceToBatchND BatchToSpaceND GatherV2 UnsortedSegmentSum
    """.split()  # noqa: SIM905
)
"""Op types that TFLite has a built-in kernel for, and that are emitted as they are."""


class Refusal(Exception):  # noqa: N818 - not an error of its own: becomes an ExportError that names the layer
    """An op cannot be lowered exactly; the message says why and what to use instead."""


def lowers(*op_types: str) -> Callable[[Lowering], Lowering]:
    """Registers a function as the lowering of op types."""

    def register(function: Lowering) -> Lowering:
        for op_type in op_types:
            LOWERINGS[op_type] = function
        return function

    return register
