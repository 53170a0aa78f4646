"""The ops of a signature that the XNNPACK delegate runs."""

from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.reading.graph import CALLS

_SUBGRAPHS = frozenset(option for options in CALLS.values() for option in options)
"""The options of ops that contain the index of a subgraph."""


def delegated(content: bytes, signature: str) -> list[int] | None:
    """Return the numbers of a signature's ops that the delegate runs; None if LiteRT cannot run the signature.

    LiteRT shows only the ops of the main subgraph, so the signature's subgraph becomes the main one. After a call, only
    tensors inside the delegate have no memory; the tensors that it returns are its outputs.
    """
    try:
        interpreter = Interpreter(model_content=_as_main(content, signature), num_threads=1)
        interpreter.allocate_tensors()
        for tensor in interpreter.get_input_details():
            interpreter.set_tensor(tensor["index"], np.zeros(tensor["shape"], tensor["dtype"]))
        interpreter.invoke()
        ops = interpreter._get_ops_details()
    except (ValueError, RuntimeError, TypeError):
        return None
    handles = {tensor["index"] for tensor in interpreter.get_tensor_details() if tensor["dtype"] is np.object_}
    delegates = [op for op in ops if op["op_name"] == "DELEGATE"]
    outputs = {int(i) for op in delegates for i in op["outputs"]}
    others = [op for op in ops if op["op_name"] != "DELEGATE"]
    return [op["index"] for op in others if delegates and _is_delegated(interpreter, op, outputs, handles)]


def _is_delegated(interpreter: Any, op: Any, outputs: set[int], handles: set[int]) -> bool:
    """Return whether the delegate runs an op; reading the handle of a variable would crash LiteRT."""
    tensors = [int(i) for i in (op["outputs"] if len(op["outputs"]) else op["inputs"][:1]) if i >= 0]
    return any(i in outputs or (i not in handles and _has_no_memory(interpreter, i)) for i in tensors[:1])


def _has_no_memory(interpreter: Any, tensor: int) -> bool:
    try:
        interpreter.get_tensor(tensor)
    except ValueError:
        return True
    return False


def _as_main(content: bytes, signature: str) -> bytes:
    """Return a file whose main subgraph is the subgraph of a signature."""
    model = unpacked(content)
    [index] = [s.subgraphIndex for s in model.signatureDefs or [] if s.signatureKey == signature.encode()] or [0]
    places = {0: index, index: 0}
    model.subgraphs[0], model.subgraphs[index] = model.subgraphs[index], model.subgraphs[0]
    for definition in model.signatureDefs or []:
        definition.subgraphIndex = places.get(definition.subgraphIndex, definition.subgraphIndex)
    operators = (operator for subgraph in model.subgraphs for operator in subgraph.operators or ())
    for options in (
        options for operator in operators for options in (operator.builtinOptions, operator.builtinOptions2)
    ):
        fields = {} if options is None else vars(options)
        fields.update({name: places.get(fields[name], fields[name]) for name in _SUBGRAPHS & fields.keys()})
    return packed(model)
