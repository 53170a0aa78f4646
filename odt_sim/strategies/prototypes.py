"""Class prototypes, the mean embeddings of classes, for strategies that share them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from odt_sim.data.columns import Array
from odt_sim.device.device import Device
from odt_sim.metrics.losses import log_softmax
from odt_sim.model.tensors import array_of
from odt_sim.strategies.base import Tensors
from odt_sim.strategies.class_counts import class_counts, means_by_class

PROTOTYPES, COUNTS = "prototypes", "counts"
"""Names of the prototypes, `[classes, features]` float32, and the numbers of examples, `[classes]` float32."""


def own_prototypes(device: Device) -> Tensors:
    """Return a device's message: the sum of embeddings and the number of examples of each class."""
    counts = class_counts(device)
    means = means_by_class(device, np.asarray(device.embedded("train").x))
    return {PROTOTYPES: (means * counts[:, np.newaxis]).astype(np.float32), COUNTS: counts.astype(np.float32)}


def mean_prototypes(before: Tensors, sent: Tensors) -> Tensors:
    """Return the prototypes after a round, weighted by examples; a class that no device has keeps its prototype.

    Args:
        before: The prototypes before the round, if any.
        sent: Mean of the devices' messages, with equal weights.
    """
    sums, counts = (array_of(sent[name]) for name in (PROTOTYPES, COUNTS))
    held = counts[:, np.newaxis] > 0  # hostile devices may make a count negative
    new = np.divide(sums, counts[:, np.newaxis], out=np.zeros_like(sums), where=held)
    if PROTOTYPES in before:
        kept, seen = (array_of(before[name]) for name in (PROTOTYPES, COUNTS))
        new = np.where(held, new, kept)
        counts = np.where(counts > 0, counts, seen)
    return {PROTOTYPES: np.asarray(new, np.float32), COUNTS: np.asarray(counts, np.float32)}


def prototype_inputs(broadcast: Tensors, strength: float) -> dict[str, Any]:
    """Return the inputs of the loss term `prototypes`; none before the first prototypes.

    Args:
        broadcast: The message that the device received.
        strength: Factor of the squared distances.
    """
    if PROTOTYPES not in broadcast:
        return {}
    known = (array_of(broadcast[COUNTS]) > 0).astype(np.float32)
    return {"prototypes": strength, "class_prototypes": broadcast[PROTOTYPES], "known_prototypes": known}


@dataclass(frozen=True, eq=False)
class NearestPrototype:
    """Predictions from the squared distances between embeddings and prototypes, for `Device.correction`.

    Attributes:
        prototypes: `[classes, features]`.
        known: `[classes]`, whether a class has a prototype; classes without one have probability 0.
        from_logits: Whether outputs are logits rather than probabilities.
    """

    prototypes: Array
    known: Array
    from_logits: bool

    def __call__(self, embeddings: Array, outputs: Array) -> Array:
        """Return the softmax of negative squared distances, `[rows, classes]`; logits if the model outputs logits."""
        rows, prototypes = embeddings.astype(np.float64), self.prototypes.astype(np.float64)
        squares = (rows**2).sum(axis=1)[:, np.newaxis] + (prototypes**2).sum(axis=1) - 2 * rows @ prototypes.T
        answers = np.exp(log_softmax(np.where(self.known, -squares, -np.inf)))
        return np.asarray(np.log(np.maximum(answers, np.finfo(np.float64).tiny)) if self.from_logits else answers)
