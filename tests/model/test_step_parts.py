"""The parts of a step that are computed at once for several steps."""

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from edits import entry, signature

from odt_sim import TrainableModel
from odt_sim.model.editing import OPS, integers, kind_of, unpacked
from odt_sim.model.step_parts import MOST_NUMBERS, StepParts, parts_of

NAMES = {number: name for name, number in vars(OPS).items() if not name.startswith("_")}


def divided(model: TrainableModel) -> tuple[Any, StepParts, set[int]]:
    """Return a model's unpacked file, the parts of its training step, and the step's inputs."""
    file = unpacked(model.content)
    train = signature(file, "train")
    inputs = {given.tensorIndex for given in train.inputs}
    loss = entry(file, "train", "outputs", "loss").tensorIndex
    return file, parts_of(file, file.subgraphs[train.subgraphIndex], inputs, loss), inputs


@pytest.mark.parametrize("name", ["softmax", "momentum", "adam", "regression", "small_mlp", "with_adapters"])
def test_parts_hold_all_ops_and_need_only_earlier_ones(name: str, request: pytest.FixtureRequest) -> None:
    file, parts, inputs = divided(request.getfixturevalue(name))
    step = file.subgraphs[signature(file, "train").subgraphIndex]
    operators = [*parts.before, *parts.between, *parts.after]
    assert sorted(map(id, operators)) == sorted(map(id, step.operators))
    made = {i for operator in step.operators for i in integers(operator.outputs)}
    known = set(inputs)
    for operator in operators:
        assert made.intersection(integers(operator.inputs)) <= known
        known.update(integers(operator.outputs))
    changes = {OPS.READ_VARIABLE, OPS.ASSIGN_VARIABLE, OPS.VAR_HANDLE, OPS.BATCH_MATMUL}
    assert not changes.intersection(kind_of(file, operator) for operator in (*parts.before, *parts.after))


def test_labels_come_before_and_the_loss_after(softmax: TrainableModel) -> None:
    file, parts, _ = divided(softmax)
    before, after = ([NAMES[kind_of(file, op)] for op in ops] for ops in (parts.before, parts.after))
    assert {"CAST", "SQUARED_DIFFERENCE", "RESHAPE"} <= set(before)
    assert {"LOG", "NEG", "SUM"} <= set(after)
    assert len(parts.between) < len(before) + len(after) + 25


def step_of(*operators: tuple[int, list[int], list[int]], shapes: dict[int, list[int]]) -> tuple[Any, Any]:
    """Return an unpacked file, and a subgraph of these ops."""
    file, step = schema.ModelT(), schema.SubGraphT()
    file.operatorCodes, step.operators, step.tensors = [], [], []
    for kind, inputs, outputs in operators:
        code, operator = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode, operator.opcodeIndex = kind, len(file.operatorCodes)
        operator.inputs, operator.outputs = np.array(inputs), np.array(outputs)
        file.operatorCodes.append(code)
        step.operators.append(operator)
    for i in range(max(shapes) + 1):
        step.tensors.append(schema.TensorT())
        step.tensors[i].shape, step.tensors[i].hasRank = shapes.get(i, []), True
        step.tensors[i].type = schema.TensorType.FLOAT32
    file.buffers = [schema.BufferT()]
    made = {output for _, _, outputs in operators for output in outputs}
    step.inputs = np.array([i for i in operators[0][1] if i not in made])
    return file, step


def add_axes(file: Any, step: Any, tensor: int) -> None:
    """Turn a tensor into the constant axis 0."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.zeros(1, np.int32).tobytes(), np.uint8)
    step.tensors[tensor].type, step.tensors[tensor].buffer = schema.TensorType.INT32, len(file.buffers)
    file.buffers.append(buffer)


def test_an_op_that_would_broadcast_otherwise_stays_between() -> None:
    file, step = step_of(
        (OPS.MUL, [0, 1], [2]), (OPS.SUM, [2, 3], [4]), shapes={0: [4], 1: [3, 4], 2: [3, 4], 3: [1], 4: [4]}
    )
    add_axes(file, step, 3)
    assert [len(part) for part in vars(parts_of(file, step, {0, 1}, 4)).values()] == [0, 1, 1]


def test_what_needs_an_input_that_is_given_step_by_step_stays_between() -> None:
    file, step = step_of(
        (OPS.MUL, [0, 1], [2]), (OPS.TANH, [2], [3]), (OPS.SUB, [3, 0], [4]), shapes={i: [4] for i in range(5)}
    )
    assert [len(part) for part in vars(parts_of(file, step, {0, 1}, 4)).values()] == [1, 1, 1]
    assert [len(part) for part in vars(parts_of(file, step, {1}, 4)).values()] == [0, 3, 0]


def test_large_values_are_not_kept_for_the_loss() -> None:
    for size, expected in ((MOST_NUMBERS, 1), (MOST_NUMBERS + 1, 0)):
        file, step = step_of((OPS.TANH, [0], [1]), (OPS.SUM, [1, 2], [3]), shapes={0: [size], 1: [size], 2: [1], 3: []})
        add_axes(file, step, 2)
        assert len(parts_of(file, step, {0}, 3).after) == expected


@pytest.mark.parametrize("change", ["type", "shapeSignature", "hasRank", "axes"])
def test_what_cannot_be_stacked_stays_between(change: str) -> None:
    file, step = step_of((OPS.NEG, [0], [1]), (OPS.SUM, [1, 2], [3]), shapes={0: [4], 1: [4], 2: [1], 3: []})
    add_axes(file, step, 2)
    assert len(parts_of(file, step, {0}, 3).before) == 2
    if change == "type":
        step.tensors[1].type = schema.TensorType.BOOL
    elif change == "shapeSignature":
        step.tensors[1].shapeSignature = [-1]
    elif change == "hasRank":
        step.tensors[3].hasRank = False
    else:
        file.buffers[step.tensors[2].buffer].data = None
    assert len(parts_of(file, step, {0}, 3).before) == (1 if change in ("hasRank", "axes") else 0)
