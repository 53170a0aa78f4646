"""Inputs of a model, by its graph: the factors that it first applies, such as 1/255, and the ids that it accepts."""

import numpy as np

from odt_sim.model.reading.graph import Graph, Op, Subgraph

KEEPING = (
    *("RESHAPE", "TRANSPOSE", "EXPAND_DIMS", "SQUEEZE"),
    *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SLICE", "STRIDED_SLICE", "PAD"),
)
"""Ops that keep the scale of their first input's values."""
PRODUCTS = ("BATCH_MATMUL", "FULLY_CONNECTED")


def scales(graph: Graph, signature: str) -> dict[str, float]:
    """Return the factor of each float input of a signature, by its name; inputs without a factor are left out.

    An input has a factor if everything computed from it begins with multiplications by a constant number.
    """
    subgraph, found = graph.subgraph(signature), dict[str, float]()
    for name, tensor in graph.signatures[signature].inputs.items():
        factor = _factor(subgraph, tensor)
        if factor != 1:
            found[name] = factor
    return found


def unscaled(graph: Graph, signature: str) -> list[str]:
    """Return the inputs of a signature that a matrix product takes without scaling, such as those of a Dense layer."""
    subgraph, inputs = graph.subgraph(signature), graph.signatures[signature].inputs
    return [name for name, tensor in inputs.items() if _is_multiplied(subgraph, tensor)]


def _is_multiplied(subgraph: Subgraph, tensor: int) -> bool:
    users = [op for op in subgraph.ops if tensor in op.inputs]
    return any(op.kind in PRODUCTS or (op.kind in KEEPING and _is_multiplied(subgraph, op.outputs[0])) for op in users)


def _factor(subgraph: Subgraph, tensor: int) -> float:
    """Return the factor by which a tensor is multiplied; 1 if there is none."""
    factor = 1.0
    if subgraph.tensors[tensor].dtype != "float32":
        return factor
    while len(users := [op for op in subgraph.ops if tensor in op.inputs]) == 1:
        [op] = users
        number = _number(subgraph, op, tensor)
        if number is None and (op.kind not in KEEPING or op.inputs[0] != tensor):
            break
        factor *= 1.0 if number is None else number
        tensor = op.outputs[0]
    return factor


def _number(subgraph: Subgraph, op: Op, tensor: int) -> float | None:
    """Return the constant number by which an op multiplies a tensor; None if it does anything else."""
    if op.kind not in ("MUL", "DIV") or (op.kind == "DIV" and op.inputs[0] != tensor):
        return None
    others = [subgraph.tensors[i] for i in op.inputs if i != tensor]
    if len(others) != 1 or not others[0].constant or others[0].value().size != 1:
        return None
    value = abs(float(np.ravel(others[0].value())[0]))
    if op.kind == "DIV":
        return 1 / value if value else None
    return value


RESHAPING = ("RESHAPE", "TRANSPOSE", "EXPAND_DIMS", "SQUEEZE", "CAST")
INTEGERS = ("int32", "int64")


def vocabularies(graph: Graph, signature: str) -> dict[str, int]:
    """Return the number of ids that each integer input of a signature accepts, by name; omit inputs without ids.

    An input contains ids if it selects rows of a table (`GATHER`), unchanged except for its shape.
    """
    subgraph, found = graph.subgraph(signature), dict[str, int]()
    for name, tensor in graph.signatures[signature].inputs.items():
        if rows := _rows_of_tables(subgraph, tensor):
            found[name] = min(rows)
    return found


def _rows_of_tables(subgraph: Subgraph, tensor: int) -> list[int]:
    """Return the number of rows of each table in which a tensor's values are looked up."""
    rows, ids = list[int](), {tensor}
    if subgraph.tensors[tensor].dtype not in INTEGERS:
        return rows
    for op in subgraph.ops:  # in the order of execution
        if op.kind in RESHAPING and op.inputs[0] in ids and subgraph.tensors[op.outputs[0]].dtype in INTEGERS:
            ids.add(op.outputs[0])
        elif op.kind in ("SELECT", "SELECT_V2") and op.inputs[2] in ids:
            ids.add(op.outputs[0])  # Keras counts ids below 0 from the end
        elif op.kind == "GATHER" and op.inputs[1] in ids and op.options.get("axis") == 0:
            rows.append(subgraph.tensors[op.inputs[0]].shape[0])
    return rows
