"""Rewrite graphs of `torch.export`: inline separate graphs, and decompose ops that have no TensorFlow function here."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from odt_sim.errors import ExportError
from odt_sim.export.torch.nodes import changes_first, name_of
from odt_sim.export.torch.program import is_known


def inlined(exported: Any) -> Any:
    """Inline the ops of each block in an `ExportedProgram`; blocks under `torch.no_grad()` pass no gradients."""
    _inline(exported.graph_module)
    return exported


def _inline(owner: Any) -> None:
    for node in list(owner.graph.nodes):
        block = getattr(node.target, "_name", "") if node.op == "call_function" else ""
        if block == "wrap_with_set_grad_enabled":
            enabled, inner, *given = node.args
            _put_block(owner, node, inner, given, passes=enabled)
        elif block == "wrap_with_autocast":
            device, _, enabled, _, inner, *given = node.args
            if enabled and device == "cpu":
                raise ExportError(
                    "torch: the module runs a block under torch.autocast, but a file computes in float32; leave autocast out"
                )
            _put_block(owner, node, inner, given, passes=True)


def _put_block(owner: Any, node: Any, inner: Any, given: list[Any], *, passes: bool) -> None:
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


def decomposed(exported: Any) -> Any:
    """Replace the ops of an `ExportedProgram` that have no function here by their decomposition in PyTorch, if any.

    Other ops stay: `run_decompositions` would rewrite the whole graph, including BatchNorm and in-place changes.
    """
    from torch._decomp import core_aten_decompositions

    table = {op: rule for op, rule in core_aten_decompositions().items() if not is_known(op)}
    for node in list(exported.graph.nodes):
        _decompose(node, table)
    return exported


def _decompose(node: Any, table: Any) -> None:
    """Replace a node by the ops of its decomposition, if it has one and no function here."""
    import torch
    from torch._ops import OpOverload

    measures = isinstance(node.meta.get("val"), torch.SymInt)  # a size that depends on values; such ops are refused
    if isinstance(node.target, OpOverload) and not measures and not is_known(node.target):
        op = _functional(node.target)
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
        if is_known(op) or op in table or composite:
            for inner in _replace(node, op, table):
                _decompose(inner, table)


def _functional(op: Any) -> Any:
    """Return the op that returns what an op writes to its first argument; the op itself if it does not write."""
    import torch

    packet = getattr(torch.ops.aten, name_of(op).removesuffix("_"), None) if changes_first(op) else None
    return getattr(packet, op._overloadname, op)


def _replace(node: Any, op: Any, table: Any) -> list[Any]:
    """Replace a node by the ops of the decomposition of an op, and return their nodes.

    If the node writes to its first argument, the op returns the new value.
    """
    from torch.fx import Node
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import tree_flatten, tree_unflatten

    flat, spec = tree_flatten((node.args, node.kwargs))
    places = [i for i, value in enumerate(flat) if isinstance(value, Node)]

    def function(*tensors: Any) -> Any:
        filled = dict(enumerate(flat)) | dict(zip(places, tensors, strict=True))
        args, kwargs = tree_unflatten(list(filled.values()), spec)
        value = op(*args, **kwargs)
        return value if op is node.target else args[0].copy_(value)

    examples = [flat[i].meta["val"] for i in places]
    result = tree_flatten(node.meta["val"])[0][0]  # an op such as torch.eye takes no tensor
    with result.fake_mode:
        inner = make_fx(function, decomposition_table=table)(*examples)
    inner.graph.eliminate_dead_code()  # such as the positions of maxima
    return put_in_place(node, inner.graph, [flat[i] for i in places])


def put_in_place(
    node: Any, inner: Any, given: Sequence[Any], finish: Callable[[Any], Any] = lambda result: result
) -> list[Any]:
    """Replace a node by the nodes of another graph, and return these.

    Args:
        node: The node; if it has several results, `getitem` reads them.
        inner: The other graph.
        given: The nodes to use for the other graph's inputs.
        finish: Returns the node to use for a result of the other graph.
    """
    from torch.fx import map_arg

    inputs, copies = iter(given), dict[Any, Any]()
    with node.graph.inserting_before(node):
        for own in inner.nodes:
            if own.op == "placeholder":
                copies[own] = next(inputs)
            elif own.op == "output":
                _use(node, map_arg(own.args[0], lambda result: finish(copies[result])))
            else:
                copies[own] = node.graph.node_copy(own, copies.__getitem__)
                inside = own.meta.get("nn_module_stack") or node.meta.get("nn_module_stack", {})
                copies[own].meta["nn_module_stack"] = inside
    node.graph.erase_node(node)
    return [copied for original, copied in copies.items() if original.op != "placeholder"]


def _use(node: Any, results: Any) -> None:
    """Replace all uses of a node's results, which may be several, by other values."""
    if not isinstance(results, list | tuple):
        node.replace_all_uses_with(results)
        return
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(results[user.args[1]])
        node.graph.erase_node(user)
