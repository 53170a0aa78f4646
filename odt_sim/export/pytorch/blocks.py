"""Blocks that `torch.export` writes as separate graphs: those under `torch.no_grad()` and `torch.autocast`."""

from typing import Any

from odt_sim.errors import ExportError
from odt_sim.export.pytorch.decomposition import put_in_place


def inlined(exported: Any) -> Any:
    """Inline the ops of each block in an `ExportedProgram`; blocks under `torch.no_grad()` pass no gradients."""
    _inline(exported.graph_module)
    return exported


def _inline(owner: Any) -> None:
    for node in list(owner.graph.nodes):
        block = getattr(node.target, "_name", "") if node.op == "call_function" else ""
        if block == "wrap_with_set_grad_enabled":
            enabled, inner, *given = node.args
            _replace(owner, node, inner, given, passes=enabled)
        elif block == "wrap_with_autocast":
            device, _, enabled, _, inner, *given = node.args
            if enabled and device == "cpu":
                raise ExportError(
                    "torch: the module runs a block under torch.autocast, but a file computes in float32; leave autocast out"
                )
            _replace(owner, node, inner, given, passes=True)


def _replace(owner: Any, node: Any, inner: Any, given: list[Any], *, passes: bool) -> None:
    import torch

    def detached(result: Any) -> Any:
        if not result.meta["val"].is_floating_point():
            return result
        with node.graph.inserting_before(node):
            copy = node.graph.call_function(torch.ops.aten.detach.default, (result,))
        copy.meta["val"] = result.meta["val"]
        return copy

    body = getattr(owner, inner.target)
    _inline(body)
    put_in_place(node, body.graph, given, (lambda result: result) if passes else detached)
    if not inner.users:
        owner.graph.erase_node(inner)
