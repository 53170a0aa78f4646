"""Signatures that write or read TensorFlow checkpoints, and the variables in these checkpoints."""

from odt_sim.model.graph import Graph, Handle, Op

SAVING = ("FlexSave", "FlexSaveV2", "FlexSaveSlices", "FlexShardedFilename", "FlexMergeV2Checkpoints")
RESTORING = ("FlexRestore", "FlexRestoreV2", "FlexRestoreSlice")
_PASSING = ("FlexEnsureShape", "FlexIdentity", "FlexReshape", "RESHAPE", "CAST")


def is_checkpointing(graph: Graph, signature: str) -> bool:
    """Return whether a signature writes or reads a checkpoint."""
    return any(op.kind in (*SAVING, *RESTORING) for op in graph.ops(signature))


def saved_variables(graph: Graph, signature: str) -> list[Handle]:
    """Return the variables that a signature writes to a checkpoint or sets from one, in the checkpoint's order."""
    index = graph.signatures[signature].subgraph
    accesses = graph.accesses[index]
    read = {access.place: access.handle for access in accesses if not access.assigns}
    assigned = {access.place: access.handle for access in accesses if access.assigns}
    restored: dict[int, None] = {}
    saved: list[Handle] = []
    for op in graph.subgraphs[index].ops:
        if op.kind in SAVING:
            saved += [read[place] for place in op.inputs if place in read]
        elif _restores(op, restored):
            restored.update(dict.fromkeys(op.outputs))
    set_from_it = [assigned[place] for place in restored if place in assigned]
    return list(dict.fromkeys([*saved, *set_from_it]))


def _restores(op: Op, restored: dict[int, None]) -> bool:
    return op.kind in RESTORING or (op.kind in _PASSING and any(place in restored for place in op.inputs))
