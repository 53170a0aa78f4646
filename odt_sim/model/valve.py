"""The conditional valve among a model's parameters, by the names that `odt_sim.export.add_valve` gives them."""

from odt_sim.model.manifest import Parameter

VALVE = "conditional_valve"
"""The name of the layer."""
CONDITION, EMBEDDINGS = "condition", "category_embeddings"
"""The names of its condition, `[features]`, and of its category embeddings, `[classes, features]`."""


def in_valve(parameter: Parameter) -> bool:
    """Return whether a parameter belongs to the valve."""
    return parameter.name.startswith(f"{VALVE}/")


def is_condition(parameter: Parameter) -> bool:
    """Return whether a parameter is the valve's condition."""
    return parameter.name == f"{VALVE}/{CONDITION}"
