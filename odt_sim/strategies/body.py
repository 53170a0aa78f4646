"""Training all below the head alone: what strategies need that freeze the head."""

from odt_sim.model.trainable import TrainableModel


def body_group(model: TrainableModel) -> str:
    """Returns the name of the group that holds all below the head: `body`, with its normalization layers if it has some."""
    return "body_norm" if any(p.group == "norm" and p.moves for p in model.parameters) else "body"
