"""Find variables that every function sets before reading them, such as sums of metrics, and replace them by tensors."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import tensorflow as tf

from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.calls import CHANGES

_KNOWN = {*CHANGES, "ReadVariableOp"}


@dataclass
class TemporaryVariable:
    """The replacement of a variable within one function: a tensor that changes.

    Attributes:
        value: The current value.
    """

    value: tf.Tensor

    def outputs(self, op: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Return the outputs of an op on the variable, given the op's other `inputs`."""
        if op.type == "ReadVariableOp":
            return [self.value]
        self.value = CHANGES[op.type](self.value, *inputs)
        return []


def temporary_variables(traces: Iterable[Trace], metrics: Collection[int]) -> set[int]:
    """Return the handle ids of the variables that every trace assigns before any other use.

    The variables in `metrics`, handle ids, need not be assigned first.
    """
    set_first: set[int] = set()
    others: set[int] = set()
    for trace in traces:
        for key, operations in _touching(trace).items():
            first = operations[0].type == "AssignVariableOp" or key in metrics
            plain = first and _KNOWN.issuperset(op.type for op in operations)
            (set_first if plain else others).add(key)
    return set_first - others


def _touching(trace: Trace) -> dict[int, list[tf.Operation]]:
    """Return the ops that use each variable's handle, in order."""
    operations: dict[int, list[tf.Operation]] = {}
    for op in trace.concrete.graph.get_operations():
        for t in op.inputs:
            if t.op.name in trace.variables:
                operations.setdefault(trace.variables[t.op.name], []).append(op)
    return operations
