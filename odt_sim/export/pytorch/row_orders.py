"""The assignment of a BatchNorm's rows to examples, for modules that merge other axes with the batch axis.

Time-series models do this: PatchTST normalizes `[batch x channels, ...]`. Padding rows of a batch must not count there.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.row_orders import ORDERS, Order


def row_orders(module: Any, given: Any, exported: Any, count: int) -> Mapping[str, Order]:
    """Return the order of rows of each BatchNorm whose rows are not those of the batch, by its path.

    Args:
        module: The `torch.nn.Module`.
        given: The arguments of its `forward`.
        exported: Its `ExportedProgram` for training.
        count: The number of examples in a batch.

    Raises:
        ExportError: The rows of an example are neither adjacent nor at a distance of `count`.
    """
    nodes, weights = [node for node in exported.graph.nodes if _normalizes(node)], _of_weights(exported)
    standardized = {path_of(node): _all_real for node in nodes if node in weights}
    rows = {path_of(node): _rows_of(node) for node in nodes if node not in weights}
    named = {path for path in rows if rows[path] != count or _is_norm(module.get_submodule(path))}
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


def _all_real(values: tf.Tensor, each: int) -> None:
    """Return None, so that all rows count."""


def path_of(node: Any) -> str:
    """Return the path of the module that a node belongs to."""
    modules = list(node.meta.get("nn_module_stack", {}).values())
    return str(modules[-1][0]) if modules else ""


def _normalizes(node: Any) -> bool:
    return node.op == "call_function" and str(node.target).startswith("aten.batch_norm")


def _rows_of(node: Any) -> int:
    return int(node.args[0].meta["val"].shape[0])


def _is_norm(part: Any) -> bool:
    """Return whether a module is a BatchNorm; another one may call the function."""
    return any(kind.__name__ == "_BatchNorm" for kind in type(part).__mro__)


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
