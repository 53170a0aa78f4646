"""Cut the graph of a PyTorch module before its head."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from odt_sim.errors import ExportError

ADVICE = "leave embed out, or name the last layers as the head"


def embedding_node(graph: Any, head: Collection[Any], inputs: Collection[Any]) -> Any:
    """Return the node that enters the head: the single input that is combined with its weights, before Dropout.

    Args:
        graph: A graph of `torch.export`.
        head: The placeholders of the head's weights.
        inputs: The placeholders of the module's inputs.

    Raises:
        ExportError: Not exactly one tensor enters the head.
    """
    of_head, of_inputs, entering = set(head), set(inputs), dict[Any, None]()
    for node in graph.nodes:
        given = [] if node.op == "output" else node.all_input_nodes
        if any(each in of_head for each in given):
            entering |= {each: None for each in given if each in of_inputs and each not in of_head}
            of_head.add(node)
        elif any(each in of_inputs for each in given):
            of_inputs.add(node)
    if len(entering) != 1:
        raise ExportError(
            f"embed: expected one tensor that enters the head of the PyTorch module, found {len(entering)}; {ADVICE}"
        )
    (embedding,) = entering
    if embedding in inputs:
        raise ExportError(f"embed: the head of the PyTorch module takes the module's inputs directly; {ADVICE}")
    while embedding.op == "call_function" and "dropout" in str(embedding.target):
        embedding = embedding.args[0]
    return embedding


def nodes_after(graph: Any, embedding: Any, changes: Callable[[Any], bool]) -> list[Any]:
    """Return the nodes that compute the outputs from the embedding, in order, including the output node."""
    needed = _needed(next(node for node in graph.nodes if node.op == "output").all_input_nodes, embedding)
    for node in graph.nodes:  # a later node may read a tensor that this node changes in place
        if node.op == "call_function" and changes(node.target) and node.args[0] in needed:
            needed |= _needed([node], embedding)
    return [node for node in graph.nodes if node in needed or node.op == "output"]


def nodes_until(graph: Any, embedding: Any) -> list[Any]:
    """Return the nodes up to the embedding, in order."""
    nodes = list(graph.nodes)
    return nodes[: nodes.index(embedding) + 1]


def _needed(nodes: Iterable[Any], embedding: Any) -> set[Any]:
    pending, needed = list(nodes), set[Any]()
    while pending:
        node = pending.pop()
        if node is not embedding and node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed
