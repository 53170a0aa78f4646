"""The parts of a training step that can be computed at once for several successive steps.

Ops that depend only on a step's inputs, such as those for one-hot labels, can run for all steps before the first one,
and ops that only the loss needs, after the last one. They are the same ops on tensors with the steps as a further first
axis, so results are bit-for-bit the same.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from odt_sim.model.editing import OPS, integers, kind_of

TYPES = schema.TensorType

ELEMENTWISE = frozenset(
    {
        *(OPS.ADD, OPS.SUB, OPS.MUL, OPS.DIV, OPS.SQUARED_DIFFERENCE, OPS.MINIMUM, OPS.MAXIMUM),
        *(OPS.NEG, OPS.ABS, OPS.LOG, OPS.EXP, OPS.SQUARE, OPS.SQRT, OPS.CAST),
    }
)
"""Ops that support a further first axis without changes."""

WITH_CONSTANT = frozenset({OPS.RESHAPE, OPS.SUM})
"""Ops that support it with another second input, a shape or axes."""

STACKED = (TYPES.FLOAT32, TYPES.INT32)
"""Types that LiteRT's PACK and UNPACK support, and that have no scale."""

MOST_NUMBERS = 4096
"""The most elements of a step's tensor that is kept until after the last step."""

MOST_AXES = 3
"""The most axes of a step's tensors: LiteRT's ops broadcast over at least four."""


@dataclass(frozen=True)
class StepParts:
    """The ops of a step in three parts, each in the order of the step.

    Attributes:
        before: Ops that depend only on inputs and constants.
        between: All other ops.
        after: Ops that only the loss needs.
    """

    before: list[Any]
    between: list[Any]
    after: list[Any]


def parts_of(file: Any, step: Any, inputs: Collection[int], loss: int) -> StepParts:
    """Divide the ops of a step.

    Args:
        file: A file in its object form.
        step: The step's subgraph.
        inputs: The inputs that are passed with the steps as a further first axis; others are passed step by step.
        loss: The loss tensor.
    """
    by_step = {*integers(step.inputs)} - set(inputs)
    varying = {i for op in step.operators for i in integers(op.outputs)} | {*integers(step.inputs)}
    stacked, before = set(inputs), dict[int, Any]()
    for operator in step.operators:
        given = varying.intersection(integers(operator.inputs))
        if given and given <= stacked and _takes_steps(file, step, operator, given):
            before[id(operator)] = operator
            stacked.update(integers(operator.outputs))
    users = defaultdict[int, list[int]](list)
    for operator in step.operators:
        for i in integers(operator.inputs):
            users[i].append(id(operator))
    after = dict[int, Any]()
    for operator in reversed(step.operators):
        given, made = varying.intersection(integers(operator.inputs)), integers(operator.outputs)
        wanted = made == [loss] or any(users[i] for i in made)
        alone = wanted and all(user in after for i in made for user in users[i])
        little = all(prod(_shape(step, i)) <= MOST_NUMBERS for i in given)
        known = bool(given) and not given & by_step
        if id(operator) not in before and known and alone and little and _takes_steps(file, step, operator, given):
            after[id(operator)] = operator
    between = [operator for operator in step.operators if id(operator) not in before.keys() | after.keys()]
    return StepParts([*before.values()], between, [*reversed(after.values())])


def _takes_steps(file: Any, step: Any, operator: Any, given: Collection[int]) -> bool:
    """Return whether an op computes the same with a further first axis of the inputs that are not constant."""
    kind, inputs, outputs = kind_of(file, operator), integers(operator.inputs), integers(operator.outputs)
    if kind not in ELEMENTWISE | WITH_CONSTANT or not all(_is_fixed(step, i) for i in (*given, *outputs)):
        return False
    if kind in WITH_CONSTANT:
        return len(inputs) == 2 and inputs[1] not in given and _is_vector_of_integers(file, step.tensors[inputs[1]])
    axes = len(_shape(step, outputs[0]))
    constant = all(len(_shape(step, i)) <= axes for i in inputs if i not in given)
    return axes <= MOST_AXES and constant and all(len(_shape(step, i)) == axes for i in given)


def _is_fixed(step: Any, tensor: int) -> bool:
    """Return whether a tensor has a type that can be stacked, and a known shape."""
    own = step.tensors[tensor]
    known = own.hasRank or bool(_shape(step, tensor))
    return known and -1 not in integers(own.shapeSignature) and own.type in STACKED


def _is_vector_of_integers(file: Any, tensor: Any) -> bool:
    return tensor.type == TYPES.INT32 and file.buffers[tensor.buffer].data is not None


def _shape(step: Any, tensor: int) -> list[int]:
    return integers(step.tensors[tensor].shape)
