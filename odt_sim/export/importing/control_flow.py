"""Calls, conditions, loops with their lists of tensors, variables, and random ops with their states.

Loops are unrolled, so their number of iterations must not depend on data. Random numbers start from a variable with a
seed and a count of draws, as in Keras' random layers, so that runs are reproducible; LiteRT's start from the clock.
"""

from functools import partial

import tensorflow as tf

from odt_sim.export.importing.registry import Operator, Value, imports, node_of
from odt_sim.export.lowering.ops import tensor_lists
from odt_sim.export.lowering.ops.control_flow import MOST_ITERATIONS
from odt_sim.export.lowering.ops.tensor_lists import LISTS, TensorList
from odt_sim.export.lowering.registry import Refusal
from odt_sim.export.trace.user_parameters import GENERATOR
from odt_sim.model.reading.graph import Graph


@imports("CALL_ONCE")
def call_once(operator: Operator) -> list[Value]:
    """Ignore an initializer, because variables already have their initial values."""
    return []


@imports("CALL")
def call(operator: Operator) -> list[Value]:
    """Import the ops of the called subgraph."""
    return operator.run(operator.options.subgraph, operator.inputs)


@imports("IF")
def condition(operator: Operator) -> list[Value]:
    """Import a condition with both branches, or only the chosen branch of a constant condition."""
    taken, *inputs = operator.inputs
    branches = [operator.options.thenSubgraphIndex, operator.options.elseSubgraphIndex]
    then, other = (partial(operator.run, index, inputs) for index in branches)
    constant = tf.get_static_value(taken)
    if constant is not None:
        return then() if constant else other()
    results = tf.cond(tf.reshape(taken, []), then, other)
    return list(results) if isinstance(results, list | tuple) else [results]


@imports("WHILE")
def loop(operator: Operator) -> list[Value]:
    """Import the ops of each iteration."""
    values = list(operator.inputs)
    for _ in range(MOST_ITERATIONS):
        (taken,) = operator.run(operator.options.condSubgraphIndex, values)
        constant = tf.get_static_value(taken)
        if constant is None:
            raise Refusal("is a loop whose number of iterations depends on data, so it cannot be unrolled")
        if not constant:
            return values
        values = operator.run(operator.options.bodySubgraphIndex, values)
    raise Refusal(f"is a loop of more than {MOST_ITERATIONS} iterations, which is too long to unroll")


def _import(op_type: str) -> None:
    @imports(f"Flex{op_type}")
    def on_list(operator: Operator) -> list[Value]:
        return LISTS[op_type](_element(operator), operator.inputs)


def _element(operator: Operator) -> tf.DType:
    """Return the element type of an op's list; float32 for ops that do not declare it, such as `TensorListLength`."""
    attributes = node_of(operator.node).attr
    return tf.as_dtype(attributes["element_dtype"].type) if "element_dtype" in attributes else tf.float32


for name in LISTS:
    if name.startswith(("TensorList", "EmptyTensorList")) and name != "TensorListElementShape":
        _import(name)


@imports("FlexTensorListElementShape")
def element_shape(operator: Operator) -> list[Value]:
    """Return the shape of a list's elements."""
    return [tf.cast(operator.inputs[0].shape, operator.dtypes[0])]


@imports("FlexZerosLike")
def zeros_like(operator: Operator) -> list[Value]:
    """Return zeros, or a list of zeros."""
    (value,) = operator.inputs
    if isinstance(value, TensorList):
        return tensor_lists.zeros_like(value.dtype, [value])
    return [tf.zeros_like(value)]


@imports("FlexAddN")
def add(operator: Operator) -> list[Value]:
    """Return the sum of tensors, or the elementwise sum of lists."""
    first = operator.inputs[0]
    if isinstance(first, TensorList):
        return tensor_lists.add(first.dtype, operator.inputs)
    return [tf.add_n(operator.inputs)]


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


UNIFORM = ("RANDOM_UNIFORM", "FlexRandomUniform")

States = dict[tuple[int, int], tf.Variable]
"""The state of each random op, by the indices of its subgraph and its output."""


def random_states(graph: Graph) -> States:
    """Return a state for each random op, with seeds 0, 1, 2, ..."""
    places = [
        (i, op.outputs[0]) for i, subgraph in enumerate(graph.subgraphs) for op in subgraph.ops if op.kind in UNIFORM
    ]
    return {
        place: tf.Variable([seed, 0], dtype=tf.int64, trainable=False, name=f"random_{seed}/{GENERATOR}")
        for seed, place in enumerate(places)
    }


@imports(*UNIFORM)
def random_uniform(operator: Operator) -> list[Value]:
    """Draw numbers in [0, 1)."""
    if operator.dtypes != [tf.float32] or operator.state is None:
        raise Refusal("draws numbers other than float32; draw float32")
    state = tf.raw_ops.ReadVariableOp(resource=operator.state.handle, dtype=tf.int64)
    tf.raw_ops.AssignVariableOp(resource=operator.state.handle, value=state + tf.constant([0, 1], tf.int64))
    return [tf.random.stateless_uniform(operator.inputs[0], tf.cast(state, tf.int32))]
