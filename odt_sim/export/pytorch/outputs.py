"""The outputs of a PyTorch module, by the names that its `forward` gives them."""

from collections.abc import Mapping, Sequence
from typing import Any

from odt_sim.errors import ExportError

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
