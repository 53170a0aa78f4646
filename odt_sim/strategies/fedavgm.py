"""FedAvgM: federated averaging with momentum on the server.

Hsu et al. 2019, Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification.
Rule: `m <- beta m + delta`, `w <- w + server_learning_rate m`, `delta` being the mean of `w_i - w` that FedAvg adds.
Travels: all weights. Stays: nothing on devices; `m` on the server. BatchNorm statistics are averaged as in FedAvg; the
optimizer's slots on devices start fresh every round, and Dropout draws as in FedAvg. Unseen devices get the global weights.
Hyper-parameters: `beta`, 0..0.99, default 0.9; `server_learning_rate`, 0.01..1, default 1. With 0 and 1 it is FedAvg.
"""

import numpy as np

from odt_sim.hyperparameters import checked
from odt_sim.model.weights import Vector
from odt_sim.strategies.server_optimizer import Moments, ServerOptimizer


class FedAvgM(ServerOptimizer):
    """FedAvg whose server goes on in the direction of earlier rounds."""

    def __init__(self, beta: float = 0.9, server_learning_rate: float = 1.0) -> None:
        """Sets the momentum.

        Args:
            beta: How much of it is kept from round to round.
            server_learning_rate: The server's step size.
        """
        super().__init__(server_learning_rate)
        self.beta = checked("beta", beta, 0, 1, below=True)

    def begin(self, size: int) -> Moments:
        """Returns an `m` of zero."""
        return {"m": np.zeros(size, np.float32)}

    def step(self, moments: Moments, delta: Vector) -> Moments:
        """Adds the update to what is kept."""
        return {"m": self.beta * moments["m"] + delta}

    def direction(self, moments: Moments) -> Vector:
        """Returns `m`."""
        return moments["m"]
