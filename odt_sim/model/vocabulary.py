"""The number of ids that a model accepts, such as the size of its vocabulary: the rows of its lookup tables."""

from odt_sim.model.graph import Graph, Subgraph

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
