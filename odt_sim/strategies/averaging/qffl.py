"""q-FFL: averaging that gives devices with larger losses more weight.

Paper: Li et al. 2020, Fair Resource Allocation in Federated Learning, algorithm 2 (q-FedAvg).
Rule: `w <- w - sum_i D_i / sum_i h_i`, with `d_i = (w - w_i) / r`, `D_i = F_i^q d_i` and
`h_i = q F_i^(q-1) |d_i|^2 + F_i^q / r`, where F_i is the loss of w on the training examples of device i, and r the local
learning rate. With q = 0 this is FedAvg with equal weights.
Travels: all weights, and h_i; BatchNorm statistics are averaged with equal weights.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: F_i is at least 1e-10, so that its powers are finite.
Unseen devices get the global weights.
Hyper-parameters: `q`, 0..15, default 1: larger values make the devices' losses more equal.
"""

from dataclasses import replace

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import number
from odt_sim.model.tensors import array_of
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import receive, trained_by_gradients


class QFFL(Strategy):
    """Averaging in which a device's loss determines its weight.

    Attributes:
        q: Power of the loss in a device's weight, at least 0; 0 is FedAvg with equal weights.
    """

    needs = frozenset({"learning_rate"})
    asynchronous = False
    weighting = "uniform"
    q: float = number(1.0)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train as in FedAvg, and send the change weighted by the loss before training."""
        receive(device, broadcast)
        loss = max(device.loss("train"), 1e-10)
        rate = device.learning_rate()
        update = super().local(device, broadcast)
        change = weights_of(update.tensors)
        step = change.select(trained_by_gradients(change.layout)) * (1 / rate)
        squared = float(np.dot(step.vector.astype(np.float64), step.vector))
        normalizer = self.q * loss ** (self.q - 1) * squared + loss**self.q / rate
        tensors: Tensors = {"weights": change.replace(step * loss**self.q), "normalizer": np.array([normalizer])}
        return replace(update, tensors=tensors)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Divide the weighted changes by their normalizers."""
        change = weights_of(updates.mean)
        step = change.select(trained_by_gradients(change.layout)) * (1 / float(array_of(updates.mean["normalizer"])[0]))
        return super().aggregate(state, replace(updates, mean={"weights": change.replace(step)}))
