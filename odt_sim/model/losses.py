"""The loss of a foreign model, inferred from the end of its inference, its targets and the ops of its training loss."""

from collections.abc import Iterable
from typing import NamedTuple

from odt_sim.model.graph import EntryPoint, Op, Tensor
from odt_sim.model.roles import Roles

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
    last = _last(list(infer.cone(infer.entry.outputs[roles["infer"].outputs["output"]])))
    output = _output(infer.graph.subgraphs[infer.entry.subgraph].tensors, infer.entry, roles["infer"].outputs["output"])
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


def _output(tensors: tuple[Tensor, ...], entry: EntryPoint, name: str) -> Tensor:
    return tensors[entry.outputs[name]]


def _last(cone: Iterable[Op]) -> str:
    """Return the kind of the last op that changes values; the cone begins at the output."""
    return next((op.kind for op in cone if op.kind not in SAME), "")
