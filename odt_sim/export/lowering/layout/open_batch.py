"""Shapes that depend on the number of rows of a batch, if a trace leaves that number open.

Computing a shape in TFLite costs ops in each step, but -1 in a RESHAPE costs nothing. So TensorFlow's shape inference and
kernels compute shapes at export for two numbers of rows. Equal results are constants, and results in proportion to the rows
are `Sizes`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.export.lowering.ops.creation import FOLDED, copied, evaluated, folded, known, reshaped
from odt_sim.export.lowering.registry import Deferred, Refusal, Value, tensor_of

PROBES = (12, 101)
"""The numbers of rows for which shapes are computed; parts of a batch, such as its pairs, have several rows in both."""

ROWS_ADVICE = "cannot take any number of rows; give a batch size, or take fixed rows out of the model"

OPEN = -1
"""The size of the axis that depends on the rows, in a shape to reshape to."""

PROPORTIONAL = frozenset(
    """
    Shape ShapeN Size StridedSlice Slice Pack Unpack ConcatV2 Split SplitV Identity Reshape ExpandDims Squeeze Transpose
    Cast GatherV2 DynamicStitch Prod Mul AddV2 Sub Neg FloorDiv BroadcastGradientArgs BroadcastArgs ConcatOffset
    """.split()  # noqa: SIM905
)
"""Op types that compute sizes from sizes; for other ops, such as a minimum, two numbers of rows prove nothing."""

NOT_INFERRED: Mapping[str, Callable[[tf.Operation, list[tf.Tensor]], list[int | None]]] = {
    "DenseBincount": lambda op, inputs: [*inputs[0].shape[:-1], op.outputs[0].shape[-1]],
    "LookupTableFindV2": lambda op, inputs: [*inputs[1].shape],
}
"""The output shape of ops whose rows TensorFlow does not infer, by op type."""

Probed = tuple[tf.Tensor, ...]
"""A traced tensor for each number of rows in `PROBES`: a constant, or a placeholder of its shape."""


@dataclass(frozen=True)
class Batch:
    """The rows of the batch in the emitted graph.

    Attributes:
        example: An argument, `[batch, ...]`.
    """

    example: tf.Tensor

    @cached_property
    def rows(self) -> tf.Tensor:
        """The number of rows, `[]` int32."""
        return tf.shape(self.example)[0]

    @cached_property
    def _zeros(self) -> tf.Tensor:
        flat = reshaped(self.example, [-1, prod(self.example.shape[1:])])
        return tf.cast(tf.raw_ops.ZerosLike(x=flat[:, :1]), tf.float32)

    def zeros(self, per_row: int) -> tf.Tensor:
        """Return zeros, `[batch * per_row]` float32: adding them repeats a tensor without computing a shape."""
        return reshaped(self._zeros + tf.zeros([1, per_row]) if per_row > 1 else self._zeros, [-1])

    def numbers(self, per_row: int) -> tf.Tensor:
        """Return 0, 1, 2, ..., `[batch * per_row]` int32."""
        first = tf.cumsum(tf.cast(self._zeros, tf.int32) + per_row, exclusive=True)
        return reshaped(first + np.arange(per_row, dtype=np.int32), [-1])


@dataclass(frozen=True)
class Sizes(Deferred):
    """Integers, some of them in proportion to the rows of a batch.

    Attributes:
        fixed: The numbers; 0 where they depend on the rows.
        per_row: The numbers per row; 0 where they do not depend on the rows.
        dtype: The type of the traced tensor.
        batch: The rows of the batch.
    """

    fixed: NDArray[Any]
    per_row: NDArray[Any]
    dtype: tf.DType
    batch: Batch

    def tensor(self) -> tf.Tensor:
        """Return the numbers for the current rows."""
        return tf.cast(self.fixed.astype(np.int32) + self.per_row.astype(np.int32) * self.batch.rows, self.dtype)

    def where(self, condition: NDArray[np.bool_], number: int) -> "Sizes":
        """Return the numbers, replaced by `number` where the condition is true."""
        return replace(
            self, fixed=np.where(condition, number, self.fixed), per_row=np.where(condition, 0, self.per_row)
        )

    @property
    def known(self) -> list[int] | None:
        """The numbers as a shape to reshape to, with -1 for the size that depends on the rows; None if several do."""
        if self.fixed.ndim != 1 or np.count_nonzero(self.per_row) > 1:
            return None
        return [OPEN if each else int(size) for each, size in zip(self.per_row, self.fixed, strict=True)]


def sizes_of(shape: Value) -> list[int]:
    """Return the sizes of a shape, with `OPEN` for the size that depends on the rows."""
    sizes = shape.known if isinstance(shape, Sizes) else [int(n) for n in known(tensor_of(shape))]
    if sizes is None:
        raise Refusal("depends on the rows along several axes; give a batch size")
    return sizes


def numbers_of(value: Value) -> list[int | tf.Tensor]:
    """Return the integers of a vector; those that depend on the rows as scalars."""
    tensor = tensor_of(value)
    fixed = evaluated(tensor)
    if fixed is not None:
        return [int(n) for n in fixed]
    per_row = value.per_row if isinstance(value, Sizes) else np.ones(tensor.shape)
    return [tensor[i] if per_row[i] else int(value.fixed[i]) for i in range(len(per_row))]


@dataclass(frozen=True)
class Probes:
    """A trace's shapes for the numbers of rows in `PROBES`; empty if its shapes are fixed.

    Attributes:
        batch: The rows of the batch; None if their number is fixed.
        graphs: A graph for each number of rows, which never runs.
    """

    batch: Batch | None = None
    graphs: tuple[tf.Graph, ...] = field(default=())

    @classmethod
    def of(cls, arguments: list[tf.Tensor]) -> "Probes":
        """Return the probes of a function with these arguments; unknown first axes are the rows."""
        open_ones = [t for t in arguments if not t.shape.is_fully_defined()]
        if not open_ones:
            return cls()
        return cls(Batch(min(open_ones, key=lambda t: t.shape.rank)), tuple(tf.Graph() for _ in PROBES))

    def argument(self, tensor: tf.Tensor) -> Probed:
        """Return the probes of an argument or a variable."""
        shape = tensor.shape if tensor.shape.rank is not None else ()
        return tuple(
            _placeholder(graph, tensor.dtype, [rows if size is None else size for size in shape])
            for graph, rows in zip(self.graphs, PROBES, strict=False)
        )

    def outputs(self, op: tf.Operation, inputs: list[Probed]) -> list[Probed]:
        """Return the probes of a traced op's outputs."""
        if not self.graphs:
            return [()] * len(op.outputs)
        fold = op.type in PROPORTIONAL or _keeps_proportion(op, inputs) or not any(map(_differ, inputs))
        each = [_outputs(graph, op, [probed[i] for probed in inputs], fold=fold) for i, graph in enumerate(self.graphs)]
        return list(zip(*each, strict=True))

    def complete(self, tensors: Iterable[Value], probed: list[Probed]) -> None:
        """Set static sizes that do not depend on the rows and that TensorFlow could not infer."""
        for tensor, own in zip(tensors, probed, strict=True):
            if isinstance(tensor, tf.Tensor) and own and not tensor.shape.is_fully_defined():
                few, many = (t.shape for t in own)
                if few.rank is not None and few.rank == many.rank:
                    tensor.set_shape([a if a == b else None for a, b in zip(few, many, strict=True)])

    def constants(self, outputs: list[Probed]) -> list[Value] | None:
        """Return the outputs of an op as constants and `Sizes`; None if any output is neither."""
        values = [self._constant(probed) for probed in outputs]
        return None if not values or any(value is None for value in values) else values

    def _constant(self, probed: Probed) -> Value | None:
        values = [value for t in probed if (value := _constant_of(t)) is not None]
        if len(values) < len(PROBES) or len({value.shape for value in values}) > 1:
            return None
        dtype, (few, many) = probed[0].dtype, values
        if np.array_equal(few, many):
            return tf.constant(few, dtype)
        if dtype.is_bool or self.batch is None:
            return None
        same, (rows, more_rows) = few == many, PROBES
        per_row = np.where(same, 0, few // rows)
        if not np.array_equal(np.where(same, few, per_row * rows), few) or np.any(per_row * more_rows != many * ~same):
            return None
        return Sizes(np.where(same, few, 0), per_row, dtype, self.batch)


def _differ(probed: Probed) -> bool:
    """Return whether a tensor's value is known and depends on the rows."""
    values = [value for t in probed if (value := _constant_of(t)) is not None]
    return any(not np.array_equal(value, values[0]) for value in values)


def _keeps_proportion(op: tf.Operation, inputs: list[Probed]) -> bool:
    """Return whether an op is the max(size, 1) by which a mean divides, or compares sizes in proportion to the rows."""
    if op.type not in ("Maximum", "Minimum"):
        return False
    values = [[_constant_of(t) for t in probed] for probed in inputs]
    if op.type == "Maximum" and any(few is not None and np.all(few <= 1) for few, _ in values):
        return True
    few_rows, many_rows = PROBES
    return all(
        few is not None and many is not None and np.array_equal(few * many_rows, many * few_rows)
        for few, many in values
    )


def _constant_of(tensor: tf.Tensor) -> NDArray[Any] | None:
    whole = tensor.op.type == "Const" and tensor.dtype in FOLDED
    return np.asarray(tf.get_static_value(tensor)) if whole else None


def _outputs(graph: tf.Graph, op: tf.Operation, inputs: list[tf.Tensor], *, fold: bool) -> list[tf.Tensor]:
    with graph.as_default():
        if op.type == "Const" and op.outputs[0].dtype in FOLDED:
            return [tf.constant(tf.get_static_value(op.outputs[0]), op.outputs[0].dtype)]
        if op.type in NOT_INFERRED:
            return [_placeholder(graph, op.outputs[0].dtype, NOT_INFERRED[op.type](op, inputs))]
        try:
            constants = folded(op, inputs) if fold else None
            outputs = constants or list(op.outputs)
            if not all(t.shape.is_fully_defined() for t in outputs):
                outputs = copied(op, inputs)
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            raise Refusal(f"the op {op.type} {ROWS_ADVICE}") from error
        # A copy serves as its own placeholder, except for integers, whose values TensorFlow must not infer further.
        return constants or [
            t if t.graph is graph and t.dtype not in FOLDED else _placeholder(graph, t.dtype, t.shape) for t in outputs
        ]


def _placeholder(graph: tf.Graph, dtype: tf.DType, shape: Any) -> tf.Tensor:
    with graph.as_default():
        return tf.compat.v1.placeholder(dtype, shape)
