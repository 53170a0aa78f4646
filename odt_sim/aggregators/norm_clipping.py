"""Norm clipping: updates are scaled down to a maximum norm.

Paper: Sun et al. 2019, Can You Really Backdoor Federated Learning?, section 4: norm thresholding of updates.
Rule: `u <- u * min(1, max_norm / |u|)`, with the Euclidean norm `|u|` over all tensors of the update together; then the
weighted mean. The simulation clips in the worker, so updates are still summed block by block; in a real fleet, a
trusted server clips. A hostile device can still choose its direction and weight: clipping limits scaled updates, but
does not defend against many devices that agree on a direction.
Hyper-parameters: `max_norm`, above 0, default 1; choose it near the norm of honest updates of the model.
"""

import math

import numpy as np

from odt_sim._support.checks import checked
from odt_sim.aggregators.base import Aggregator, with_numbers
from odt_sim.model.tensors import array_of
from odt_sim.strategies.base import Tensors


class NormClipping(Aggregator):
    """Weighted mean of updates that are scaled down to a maximum norm."""

    def __init__(self, max_norm: float = 1.0) -> None:
        """Set the maximum norm.

        Args:
            max_norm: Maximum norm of an update, over all of its tensors together, above 0.
        """
        self.max_norm = checked("max_norm", max_norm, 0, above=True, group="aggregator")

    def limit(self, tensors: Tensors) -> Tensors:
        """Scale an update down to the maximum norm; shorter updates are unchanged."""
        length = norm(tensors)
        if length <= self.max_norm:
            return tensors
        factor = self.max_norm / length
        return {
            name: with_numbers(tensor, array_of(tensor).astype(np.float64) * factor) for name, tensor in tensors.items()
        }


def norm(tensors: Tensors) -> float:
    """Return the Euclidean norm of all tensors together, bit-identical for any number of threads."""
    return math.sqrt(sum(float(np.square(array_of(tensor), dtype=np.float64).sum()) for tensor in tensors.values()))
