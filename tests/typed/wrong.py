"""Mistakes of a user that mypy finds with `strict`: it also refuses a `type: ignore` where there is no error."""

import numpy as np

from odt_sim import Device, Strategy, Weights
from odt_sim.aggregators.base import with_numbers
from odt_sim.strategies.base import Tensors


class Wrong(Strategy):
    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        return 0.5 * (super().deploy(device, broadcast) + device.parameters())

    def local(self, device: Device, broadcast: object) -> float:  # type: ignore[override]
        return device.train(epochs="one")  # type: ignore[arg-type, return-value]


def rounded(weights: Weights) -> Weights:
    return with_numbers(weights, np.round(weights.vector, 3))
