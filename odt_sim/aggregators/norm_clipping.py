"""Norm clipping: no update is longer than a bound.

Sun et al. 2019, Can You Really Backdoor Federated Learning?, section 4: norm thresholding of updates.
Rule: `u <- u * min(1, max_norm / |u|)`, `|u|` being the Euclidean norm over all tensors of the update together; then
the weighted mean. It runs beside the device, so blocks are still added up and nothing more is held. In a real fleet a
trusted server does it: the simulation only does the same sum elsewhere.
A hostile device can still choose its direction and say what it weighs: clipping bounds what scaled updates do, and is
no defence against many that agree on a direction.
Hyper-parameters: `max_norm`, above 0, default 1; the updates of a model set its scale, so choose it near the norm of
honest ones.
"""

import math

import numpy as np

from odt_sim.aggregators.base import Aggregator, with_numbers
from odt_sim.hyperparameters import checked
from odt_sim.strategies.base import Tensors, array_of


class NormClipping(Aggregator):
    """The weighted mean of updates that are scaled down to a bound."""

    def __init__(self, max_norm: float = 1.0) -> None:
        """Sets the bound.

        Args:
            max_norm: The longest that an update may be.
        """
        self.max_norm = checked("max_norm", max_norm, 0, above=True, group="aggregator")

    def limit(self, tensors: Tensors) -> Tensors:
        """Scales an update down to the bound; one within it stays as it is."""
        length = norm(tensors)
        if length <= self.max_norm:
            return tensors
        factor = self.max_norm / length
        return {
            name: with_numbers(tensor, array_of(tensor).astype(np.float64) * factor) for name, tensor in tensors.items()
        }


def norm(tensors: Tensors) -> float:
    """Returns the Euclidean norm of all tensors together; the same bits whatever the number of threads."""
    return math.sqrt(sum(float(np.square(array_of(tensor), dtype=np.float64).sum()) for tensor in tensors.values()))
