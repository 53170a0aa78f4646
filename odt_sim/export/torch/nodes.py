"""The graphs of `torch.export`: names, views, changes in place, the rows that BatchNorm normalizes, the head, the outputs."""

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.keras.padding_rows import ORDERS, Order

_MAYBE_VIEWS = ("contiguous", "reshape")
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


def row_orders(module: Any, given: Any, exported: Any, count: int) -> Mapping[str, Order]:
    """Return the order of rows of each BatchNorm whose rows are not those of the batch, by its path.

    Time-series models merge other axes with the batch axis: PatchTST normalizes `[batch x channels, ...]`. Padding rows of a
    batch must not count there.

    Args:
        module: The `torch.nn.Module`.
        given: The arguments of its `forward`.
        exported: Its `ExportedProgram` for training.
        count: The number of examples in a batch.

    Raises:
        ExportError: The rows of an example are neither adjacent nor at a distance of `count`.
    """
    from torch.nn.modules.batchnorm import _BatchNorm

    calls = [node for node in exported.graph.nodes if node.op == "call_function"]
    nodes, weights = [node for node in calls if str(node.target).startswith("aten.batch_norm")], _of_weights(exported)
    standardized: dict[str, Order] = {path_of(node): lambda *_: None for node in nodes if node in weights}
    rows = {path_of(node): int(node.args[0].meta["val"].shape[0]) for node in nodes if node not in weights}
    # Another module than a BatchNorm may call the function.
    named = {path for path in rows if rows[path] != count or isinstance(module.get_submodule(path), _BatchNorm)}
    of_first = _rows_of_first(module, given, named) if named else {}
    moved = [path for path in named if rows[path] != count or any(of_first.get(path, [])[1:])]
    return {**standardized, **{path: _order(path, rows[path], of_first.get(path, []), count) for path in moved}}


def _of_weights(exported: Any) -> set[Any]:
    """Return the nodes that do not depend on inputs, such as standardized weights of a convolution (arXiv:1903.10520)."""
    inputs, found = set(exported.graph_signature.user_inputs), set[Any]()
    for node in exported.graph.nodes:
        if node.name not in inputs and all(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


def path_of(node: Any) -> str:
    """Return the path of the module that a node belongs to."""
    modules = list(node.meta.get("nn_module_stack", {}).values())
    return str(modules[-1][0]) if modules else ""


def _rows_of_first(module: Any, given: Any, paths: set[str]) -> dict[str, list[bool]]:
    """Return whether each row of each BatchNorm depends on the first example, which is tested with NaN."""
    import torch

    rows = dict[str, list[bool]]()

    def note(path: str, inputs: tuple[Any, ...]) -> None:
        rows[path] = inputs[0].flatten(1).isnan().any(1).tolist()

    def spoiled(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        return torch.cat([torch.full_like(x[:1], float("nan")), x[1:]])

    hooks = [
        module.get_submodule(path).register_forward_pre_hook(lambda _, inputs, path=path: note(path, inputs))
        for path in paths
    ]
    before = [(part, part.training) for part in module.modules()]
    try:
        with torch.no_grad():
            module.eval()(*map(spoiled, given.args), **{name: spoiled(x) for name, x in given.kwargs.items()})
    finally:
        for hook in hooks:
            hook.remove()
        for part, mode in before:
            part.training = mode
    return rows


def _order(path: str, rows: int, of_first: list[bool], count: int) -> Order:
    each, first = rows // count, tf.one_hot(0, count)
    for order in ORDERS:
        if (order(first, each).numpy() > 0).tolist() == of_first:
            return order
    raise ExportError(
        f"torch: op batch_norm of module {path!r} normalizes {rows} rows of {count} examples in an order that hides "
        "which rows pad a batch; keep the examples on axis 0, or use LayerNorm"
    )


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


LOGITS = "logits"


def structured(exported: Any, outputs: Sequence[Any]) -> Any:
    """Return a graph's outputs in the structure of a Keras model: one, a list, or a mapping if `forward` returns one.

    Models of `transformers` return a mapping of logits and optional hidden states; only the logits are used as output.

    Args:
        exported: The `torch.export.ExportedProgram`.
        outputs: Its outputs in flat order.

    Raises:
        ExportError: The outputs contain a loss that the module computes itself.
    """
    from torch.utils._pytree import tree_unflatten

    return as_keras(tree_unflatten(list(outputs), exported.call_spec.out_spec), outputs)


def as_keras(returned: Any, outputs: Sequence[Any]) -> Any:
    """Return what `forward` returned, with its tensors in flat order, in the structure of a Keras model."""
    if isinstance(returned, Mapping):
        if LOGITS in returned and "loss" in returned:
            raise ExportError(
                "torch: forward computes its own loss from targets among its inputs (labels); leave them out of "
                "example, and pass loss"
            )
        return returned[LOGITS] if LOGITS in returned else _one_or_all(_by_name(returned))
    return _one_or_all(outputs)


def _by_name(returned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors of a mapping by name; tensors of a list are numbered."""
    named = dict[str, Any]()
    for name, value in returned.items():
        if isinstance(value, list | tuple):
            named |= {f"{name}_{i}": tensor for i, tensor in enumerate(value)}
        else:
            named[name] = value
    return named


def _one_or_all(outputs: Any) -> Any:
    several = list(outputs.values()) if isinstance(outputs, dict) else list(outputs)
    return several[0] if len(several) == 1 else outputs
