"""Names, layers, roles and groups of a foreign model's weights, and its loss, inferred from its graph."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odt_sim.errors import ModelError
from odt_sim.model.contract.manifest import GROUPS, Parameter
from odt_sim.model.foreign.roles import Roles
from odt_sim.model.reading.dataflow import Flow
from odt_sim.model.reading.graph import Handle, Variable

NORM = r"gamma|beta|moving_(mean|variance)|running_(mean|var)"
STATISTIC = r"moving_(mean|variance)|running_(mean|var)"
Groups = Mapping[str, Any]


def in_order_of_use(flow: Flow, handles: Sequence[Handle]) -> list[Handle]:
    """Return variables in the order in which inference combines them with its input; unused ones last."""
    order: dict[Handle, None] = {}
    for op in flow.graph.subgraphs[flow.entry.subgraph].ops:
        found = [flow.sources.get(i, frozenset()) for i in op.inputs]
        if any(isinstance(source, str) for sources in found for source in sources):
            for sources in found:
                if not any(isinstance(source, str) for source in sources):
                    order.update(dict.fromkeys(source for source in sources if isinstance(source, Handle)))
    return [handle for handle in (*order, *(h for h in handles if h not in order)) if handle in handles]


def described(
    variables: Sequence[Variable], trained: Sequence[Handle], groups: Groups | None, where: str
) -> tuple[Parameter, ...]:
    """Return the weights with names, roles and groups.

    Without `groups`, the head is the layer of the last weight matrix that training changes.

    Args:
        variables: The weights in the order `a0..aN`.
        trained: The variables that training changes.
        groups: By group, the names of layers or the numbers of weights, one or several; negative numbers count from the end.
        where: The file's name, for errors.

    Raises:
        ModelError: A group, a layer or a number is unknown.
    """
    names = _unique([re.sub(r":\d+$", "", v.name) or "variable" for v in variables])
    layers = _layers(names, variables)
    group = ["norm" if re.search(rf"(^|/)({NORM})$", name) else "body" for name in names]
    if not groups:
        changed = [i for i, v in enumerate(variables) if v.handle in trained]
        last = ([i for i in changed if len(variables[i].shape or ()) > 1] or changed)[-1:]
        group = [
            "head" if last and layer == layers[last[0]] else kind for kind, layer in zip(group, layers, strict=True)
        ]
    for key, wanted in (groups or {}).items():
        if key not in GROUPS:
            raise ModelError(f"{where}: model.groups: unknown group {key!r}; expected one of {', '.join(GROUPS)}")
        for each in wanted if isinstance(wanted, list | tuple) else [wanted]:
            for i in _selected(each, names, layers, f"{where}: model.groups.{key}"):
                group[i] = key
    return tuple(
        Parameter(name, v.shape or (), role=_role(name, v.handle in trained), group=group[i])
        for i, (name, v) in enumerate(zip(names, variables, strict=True))
    )


def _role(name: str, trained: bool) -> str:
    if not trained:
        return "frozen"
    return "statistic" if re.search(rf"(^|/)({STATISTIC})$", name) else "trainable"


def _unique(names: Sequence[str]) -> list[str]:
    counts: dict[str, int] = {}
    unique = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        unique.append(name if counts[name] == 1 else f"{name}.{counts[name]}")
    return unique


def _layers(names: Sequence[str], variables: Sequence[Variable]) -> list[str]:
    """Return each weight's layer: the path of its name, else `layer<i>`; a weight with two axes or more begins one."""
    layers, number = [], -1
    for name, variable in zip(names, variables, strict=True):
        path = name.rpartition("/")[0]
        number += len(variable.shape or ()) > 1 or number < 0
        layers.append(path or f"layer{number}")
    return layers


def _selected(wanted: Any, names: Sequence[str], layers: Sequence[str], where: str) -> list[int]:
    """Return the numbers of the weights that a layer's name, a weight's name or a number selects."""
    if isinstance(wanted, int) and not isinstance(wanted, bool) and -len(names) <= wanted < len(names):
        return [wanted % len(names)]
    found = [
        i
        for i, (name, layer) in enumerate(zip(names, layers, strict=True))
        if wanted in (name, layer, layer.rpartition("/")[2], f"a{i}")
    ]
    if not found:
        known = ", ".join(dict.fromkeys(layers))
        raise ModelError(
            f"{where}: no layer {wanted!r}; expected a layer ({known}) or the number of a weight, 0 to {len(names) - 1}"
        )
    return found


SAME = ("RESHAPE", "SQUEEZE", "CAST", "FlexIdentity", "DEQUANTIZE", "QUANTIZE")
SPARSE = ("FlexSparseSoftmaxCrossEntropyWithLogits",)
ENTROPIES = ("LOG", "LOG_SOFTMAX", "FlexSoftmaxCrossEntropyWithLogits", "FlexLogSoftmax", "FlexLog1p", *SPARSE)
SQUARES = ("SQUARED_DIFFERENCE", "SQUARE", "FlexSquaredDifference", "FlexSquare")


class Loss(NamedTuple):
    """A loss and the form of its input.

    Attributes:
        name: One of `manifest.LOSSES`; None if it is uncertain.
        from_logits: Whether it takes the inference's output as logits.
        reason: The reason for this loss, or why it is uncertain.
    """

    name: str | None
    from_logits: bool
    reason: str


def inferred_loss(roles: Roles) -> Loss:
    """Infer the loss of a file with `train` and `infer`, only where it is certain.

    An output after a softmax contains the probabilities of classes, an output after a sigmoid the probability of one
    class. Targets with fewer axes than the output, or with one column, are class numbers. Else the logarithms or
    squares in the training loss decide.
    """
    infer, train = roles.flow("infer"), roles.flow("train")
    index = infer.entry.outputs[roles["infer"].outputs["output"]]
    output = infer.graph.subgraphs[infer.entry.subgraph].tensors[index]
    last = next((op.kind for op in infer.cone(index) if op.kind not in SAME), "")  # the last op that changes values
    targets = train.graph.subgraphs[train.entry.subgraph].tensors[train.entry.inputs[roles["train"].inputs["y"]]]
    loss = roles["train"].outputs.get("loss")
    kinds = {op.kind for op in (train.cone(train.entry.outputs[loss]) if loss else infer.graph.ops(train.entry.name))}
    entropy, squares = bool(kinds & {*ENTROPIES}), bool(kinds & {*SQUARES})
    columns = output.shape_signature[-1] if len(output.shape_signature) > 1 else 1
    one_each = len(targets.shape_signature) < len(output.shape_signature) or (
        targets.shape_signature[-1:] == (1,) and columns > 1
    )
    probabilities = last in ("SOFTMAX", "LOGISTIC")
    if columns == 1:
        if last == "LOGISTIC" or (entropy and "LOGISTIC" in kinds):
            return Loss("binary_crossentropy", not probabilities, "one output, and a sigmoid")
    elif one_each and (entropy or last == "SOFTMAX" or targets.dtype != "float32"):
        return Loss(
            "sparse_categorical_crossentropy",
            not probabilities,
            "y has one number per row, the output has one per class",
        )
    elif last == "SOFTMAX" or (
        entropy and last != "LOGISTIC" and targets.shape_signature[1:] == output.shape_signature[1:]
    ):
        return Loss(
            "categorical_crossentropy",
            not probabilities,
            "targets of the outputs' shape, and a logarithm of the outputs",
        )
    if squares and not entropy and not one_each:
        return Loss("mean_squared_error", True, "targets of the outputs' shape, and squared differences")
    return Loss(None, True, "the loss cannot be inferred from the graph")
