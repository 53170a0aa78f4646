"""Find activations that TensorFlow's converter dropped.

The converter makes `relu(x @ w)` one op, FULLY_CONNECTED with an activation, and names its output after both. If a
signature assigns w and no bias is added, it then turns that op into BATCH_MATMUL, which has no activation. Only the
activation's name remains. If the activation is the signature's output, not even the name remains: the file equals one
without the activation.
"""

import re
from collections.abc import Iterator

from odt_sim.model.graph import ACTIVATIONS, Graph, Subgraph

NAMED = rf"(.*/)?({'|'.join(ACTIVATIONS)})[_\d]*"
KEPT = (*map(str.upper, ACTIVATIONS), "RELU_N1_TO_1")


def lost_activations(graph: Graph, signature: str) -> Iterator[str]:
    """Yield the outputs of products in a signature that are named after an activation, which no op computes."""
    for index in graph.reachable(graph.signatures[signature].subgraph):
        yield from _lost(graph.subgraphs[index])


def _lost(subgraph: Subgraph) -> Iterator[str]:
    activated = {i for op in subgraph.ops if op.kind in KEPT for i in op.inputs}
    for op in subgraph.ops:
        if op.kind == "BATCH_MATMUL" and op.outputs[0] not in activated:
            tensor = subgraph.tensors[op.outputs[0]]
            _, *fused = tensor.name.split(";")
            if len(tensor.shape) == 2 and any(re.fullmatch(NAMED, name) for name in fused):
                yield tensor.name
