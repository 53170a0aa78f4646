"""Scaled updates: an update with flipped sign, or one long enough to replace the model.

Papers: Bagdasaryan et al. 2020, How to Backdoor Federated Learning, section 3 (model replacement); with a factor below
0, the sign flip of Li et al. 2019, RSA: Byzantine-Robust Stochastic Aggregation Methods.
Rule: a hostile device trains like all others and sends `factor` times all tensors of its update. Integers, such as
FedKD's ranks, stay unchanged, since an unreadable update would only be discarded. FedKD sends three factors of each
matrix, so their product is scaled by the cube of `factor`.
Hyper-parameters: `factor`, any number, default -1. Model replacement needs the number of devices in a cohort divided by
`strategy.server_learning_rate` and by the number of hostile devices: their updates then outweigh the cohort's mean.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import checked
from odt_sim.attacks.base import Attack
from odt_sim.device.device import Device
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Tensors


class Scaling(Attack):
    """Attack by multiplying updates by a factor."""

    def __init__(self, factor: float = -1.0) -> None:
        """Set the factor.

        Args:
            factor: Factor of all tensors of an update: below 0 for the opposite direction, large to outweigh honest ones.
        """
        self.factor = checked("factor", factor, -math.inf, group="attack")

    def sent(self, device: Device, tensors: Tensors) -> Tensors:
        """Return the tensors times the factor."""
        return tensors if self.factor == 1 else {name: _times(self.factor, tensor) for name, tensor in tensors.items()}


def is_real(tensor: Weights | NDArray[Any]) -> bool:
    """Return whether a tensor contains real numbers, which an attack may change, rather than counts or indices."""
    return array_of(tensor).dtype.kind == "f"


def _times(factor: float, tensor: Weights | NDArray[Any]) -> Weights | NDArray[Any]:
    if isinstance(tensor, Weights):
        return factor * tensor
    return np.asarray(factor * tensor, tensor.dtype) if is_real(tensor) else tensor
