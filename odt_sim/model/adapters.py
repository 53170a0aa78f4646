"""The low-rank adapters among a model's parameters, recognized by Keras' names for them."""

import re
from collections.abc import Iterable

from odt_sim.model.manifest import Parameter

LORA_RANK = "lora_rank_"
"""The capability of a model with trainable adapters, followed by their rank."""
_ADAPTER = re.compile(r"(?:^|/)lora_(?:kernel|embeddings)_([ab])(?:_\d+)?$")


def is_adapter(parameter: Parameter) -> bool:
    """Return whether a parameter is one of the two matrices of an adapter."""
    return bool(_ADAPTER.search(parameter.name))


def ranks_of(parameters: Iterable[Parameter]) -> set[int]:
    """Return the ranks of the trainable adapters: the first size of each second matrix, `[rank, outputs]`."""
    found = ((_ADAPTER.search(p.name), p) for p in parameters if p.role == "trainable")
    return {p.shape[0] for match, p in found if match and match[1] == "b"}
