"""Trial of an adapted file, with other shapes of the targets where LiteRT refuses the declared shape."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from odt_sim.errors import ModelError
from odt_sim.model.adaptation import Adaptation
from odt_sim.model.editing import packed, unpacked
from odt_sim.model.flatbuffer import fingerprint
from odt_sim.model.graph_reader import read_graph
from odt_sim.model.verification import verify

Adapt = Callable[[bytes], Adaptation]
REFUSED = "signature 'train' failed"


def tried(content: bytes, where: str, adapt: Adapt) -> Adaptation:
    """Return an adapted file that LiteRT can run, verified in a subprocess.

    If LiteRT refuses to train with the declared shape of y, other shapes are tried: one number for each example, one
    column, and one column for each output of inference.

    Args:
        content: The file's bytes.
        where: The file's name, for errors.
        adapt: `adaptation.adapted` with all but the first argument.

    Raises:
        ModelError: The file cannot be trained, or LiteRT cannot run it with any of the shapes.
    """
    adaptation = adapt(content)
    try:
        verify(adaptation.content, fingerprint(adaptation.content), where)
    except ModelError as error:
        if adaptation.roles is None or REFUSED not in str(error):
            raise
        return _with_other_targets(content, where, adapt, adaptation, error)
    return adaptation


def _with_other_targets(
    content: bytes, where: str, adapt: Adapt, adaptation: Adaptation, error: ModelError
) -> Adaptation:
    assert adaptation.roles is not None
    train, infer = adaptation.roles["train"], adaptation.roles["infer"]
    graph = read_graph(content, where)
    tensors = graph.subgraph(train.signature).tensors
    index = graph.signatures[train.signature].inputs[train.inputs["y"]]
    output = graph.signatures[infer.signature].outputs[infer.outputs["output"]]
    declared = tensors[index].shape_signature
    columns = graph.subgraph(infer.signature).tensors[output].shape_signature[1:]
    subgraph = graph.signatures[train.signature].subgraph
    for shape in dict.fromkeys([declared[:1], (*declared[:1], *columns), (*declared[:1], 1)]):
        if shape == declared:
            continue
        other = adapt(with_shape(content, subgraph, index, shape))
        try:
            verify(other.content, fingerprint(other.content), where)
        except ModelError:
            continue
        refused = f"{train.signature!r} rejects the declared shape of {train.inputs['y']!r}, {_text(declared)}"
        return replace(other, notes=(f"{refused}, but accepts {_text(shape)}", *other.notes))
    raise error


def with_shape(content: bytes, subgraph: int, tensor: int, shape: tuple[int, ...]) -> bytes:
    """Return a file with another declared shape of one tensor; -1 is a size that is not fixed."""
    model = unpacked(content)
    changed = model.subgraphs[subgraph].tensors[tensor]
    changed.shape = np.array([max(size, 1) for size in shape], np.int32)
    changed.shapeSignature = np.array(shape, np.int32)
    return packed(model)


def _text(shape: tuple[int, ...]) -> str:
    return str(["?" if size < 0 else size for size in shape]).replace("'", "")
