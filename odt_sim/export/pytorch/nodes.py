"""Properties of the nodes of a graph of `torch.export`: their names, views and changes in place."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from odt_sim.errors import ExportError
from odt_sim.export.pytorch.row_orders import path_of

_MAYBE_VIEWS = ("contiguous", "flatten", "reshape", "reshape_as")
"""Ops that may return a view, although their schema does not say so."""


def is_read_by_other_views(parent: Any, view: Any, values: Mapping[Any, Any]) -> bool:
    """Return whether a later op reads another view of a tensor, which was computed before a change to it."""
    others = [user for user in parent.users if user is not view and user in values and is_view(user)]
    return any(reader not in values for other in others for reader in other.users)


def check_buffers(graphs: Sequence[Any]) -> None:
    """Refuse buffers that ops change and read, such as a moving average; BatchNorm updates its buffers without such ops.

    Args:
        graphs: The `ExportedProgram` of each mode.

    Raises:
        ExportError: A buffer is changed and read.
    """
    changed, read = dict[str, Any](), set[str]()
    for exported in graphs:
        buffers = exported.graph_signature.inputs_to_buffers
        for node in exported.graph.nodes:
            for argument in node.all_input_nodes:
                root = root_of(argument)
                if (name := buffers.get(root.name)) is None or is_view(node):
                    continue
                if argument is changed_by(node):
                    changed.setdefault(name, node)
                else:
                    read.add(name)
    for name in (name for name in changed if name in read):
        node = changed[name]
        raise ExportError(
            f"torch: {described(node)} changes the buffer {name!r}, but a file only supports the "
            "statistics of BatchNorm; compute the buffer from parameters, or do not change it"
        )


def root_of(node: Any) -> Any:
    """Return the tensor that a node is a view of or changed in place; the node itself if neither."""
    while is_view(node) or changed_by(node) is not None:
        node = node.args[0] if is_view(node) else changed_by(node)
    return node


def changed_by(node: Any) -> Any:
    """Return the argument that a node writes to: the first one, or `out`; None if it writes to none."""
    if node.op != "call_function":
        return None
    return node.args[0] if changes_first(node.target) else node.kwargs.get("out")


def is_constant(node: Any) -> bool:
    """Return whether a node computes a tensor from numbers only, such as a window; PyTorch computes it once."""
    import torch

    drawn = torch.Tag.nondeterministic_seeded in node.target.tags
    return not node.all_input_nodes and not drawn and isinstance(node.meta.get("val"), torch.Tensor)


def is_view(node: Any) -> bool:
    """Return whether a node shares the memory of its first argument."""
    if node.op != "call_function" or not node.args:
        return False
    if node.target is operator.getitem:
        return is_view(node.args[0])
    if not hasattr(node.target, "_schema") or changed_by(node) is not None:
        return False
    if name_of(node.target) == "to" and node.meta["val"].dtype != node.args[0].meta["val"].dtype:
        return False
    return name_of(node.target) in _MAYBE_VIEWS or any(each.alias_info for each in node.target._schema.returns)


def changes_first(target: Any) -> bool:
    """Return whether an op changes its first argument in place."""
    name = name_of(target)
    return name.endswith("_") and not name.startswith("_")


def name_of(target: Any) -> str:
    """Return an op's name without its namespace and overload."""
    return str(target._schema.name.partition("::")[2]) if hasattr(target, "_schema") else str(target)


def scope_of(node: Any) -> str:
    """Return a TensorFlow scope from the path of the module that an op belongs to."""
    cleaned = "".join(c if c.isalnum() or c in "_./" else "_" for c in path_of(node).removeprefix("L['self']"))
    return cleaned.strip("._").replace(".", "/") or "module"


def described(node: Any) -> str:
    """Return the name of a node's op and the module that it belongs to, for errors."""
    op = f"op {name_of(node.target)}"
    return f"{op} of module {path!r}" if (path := path_of(node)) else op
