"""The identity of a model, which all its exports share."""

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

from odt_sim.model.reading.graph import Op, Subgraph
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights

_OF_THE_FILE = ("name", "random_states", "format_version")
"""Fields of the manifest that differ between exports of one model; Keras numbers the names of models and layers."""


def model_digest(model: TrainableModel, initial: Weights) -> str:
    """Return 16 hexadecimal digits that are equal for all exports of a model with the same initial weights.

    Exports for different strategies differ in their signatures (`train_head`, `set_gradient_offset`, `embed`) and in terms of
    the loss. The digest covers what they have in common: the manifest, the graph of `infer`, and the weights. It does not
    cover settings that only affect training, such as the rate of a Dropout layer or a term of the loss.

    Args:
        model: The model.
        initial: Its initial weights.
    """
    digest = hashlib.sha256()
    digest.update(_text(_manifest(model)))
    digest.update(_ops(model.content, model.where))
    for name in initial.layout.names:
        digest.update(initial[name].tobytes())
    return digest.hexdigest()[:16]


def _text(part: Any) -> bytes:
    return json.dumps(part, sort_keys=True, default=str).encode()


@lru_cache(maxsize=4)
def _ops(content: bytes, where: str) -> bytes:
    """Return the description of `infer`, cached because each run of a sweep would read the whole file for it."""
    return _text(_description(read_graph(content, where).subgraph("infer")))


def _manifest(model: TrainableModel) -> dict[str, Any]:
    """Return the manifest's fields, without names and without the inputs of terms, which the export added."""
    if model.manifest is None:
        return {"loss": model.loss}
    fields = json.loads(replace(model.manifest, train_inputs=()).to_json())
    parameters = [{key: value for key, value in each.items() if key != "name"} for each in fields.pop("parameters")]
    return {"parameters": parameters, **{name: value for name, value in fields.items() if name not in _OF_THE_FILE}}


def _description(subgraph: Subgraph) -> list[Any]:
    """Return the ops with their options, and the digests of the constants that they read."""
    return [
        [op.kind, _options(op), [_constant(subgraph, tensor) for tensor in op.inputs if tensor >= 0]]
        for op in subgraph.ops
        if op.kind != "CALL_ONCE"
    ]


def _options(op: Op) -> dict[str, str]:
    """Return the options without indices of subgraphs, which depend on the other signatures."""
    options = {name: str(value) for name, value in op.options.items() if "ubgraph" not in name}
    return {**options, "custom": op.custom_options.hex()}


def _constant(subgraph: Subgraph, tensor: int) -> str:
    data = subgraph.tensors[tensor].data
    return "" if data is None else hashlib.sha256(data.tobytes()).hexdigest()
