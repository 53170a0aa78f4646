"""Export options for the capabilities that a strategy needs, without importing TensorFlow."""

from collections.abc import Mapping, Set
from typing import Any

from odt_sim.model.contract.manifest import LORA_RANK
from odt_sim.model.contract.signatures import ON_EMBEDDINGS, parts_of

TERM_NAMES = ("contrastive", "distillation", "logit_shift", "mean_embedding", "not_true_distillation", "prototypes")
"""The names of the shipped terms, as in `odt_sim.export.terms.TERMS`, and of the capabilities that they add."""


def with_needs(spec: Mapping[str, Any], missing: Set[str]) -> dict[str, Any]:
    """Return the specification of an export with the options that add missing capabilities.

    Capabilities that no option adds, such as plain SGD, change nothing: the strategy then rejects the model.

    Args:
        spec: The specification, see `odt_sim.export.cache.exported`.
        missing: The names of the missing capabilities, see `TrainableModel.capabilities`.
    """
    groups = [name.removeprefix("train_") for name in sorted(missing) if name.startswith("train_")]
    lists = {
        "train_groups": [group for group in groups if parts_of(group)],
        "terms": [name for name in TERM_NAMES if name in missing],
    }
    ranks = [int(name.removeprefix(LORA_RANK)) for name in sorted(missing) if name.startswith(LORA_RANK)]
    flags = {
        "embed": ON_EMBEDDINGS,
        "gradient_offset": ("gradient_offset", "set_gradient_offset"),
    }
    return {
        **spec,
        **{option: [*(spec.get(option) or ()), *added] for option, added in lists.items() if added},
        **{option: True for option, names in flags.items() if not missing.isdisjoint(names)},
        **({"lora_rank": ranks[0]} if ranks and spec.get("lora_rank") is None else {}),
    }
