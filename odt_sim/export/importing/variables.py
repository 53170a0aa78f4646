"""Variables, which stand for their handles."""

import tensorflow as tf

from odt_sim.export.importing.registry import Operator, Value, imports


@imports("VAR_HANDLE", "FlexVarHandleOp")
def var_handle(operator: Operator) -> list[Value]:
    """Return the op's variable."""
    return list(operator.variables.values())


@imports("READ_VARIABLE", "FlexReadVariableOp")
def read_variable(operator: Operator) -> list[Value]:
    """Import a read of V."""
    (variable,) = operator.inputs
    return [tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)]


@imports("ASSIGN_VARIABLE", "FlexAssignVariableOp")
def assign_variable(operator: Operator) -> list[Value]:
    """Import the assignment V = X."""
    variable, value = operator.inputs
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tf.ensure_shape(value, variable.shape))
    return []
