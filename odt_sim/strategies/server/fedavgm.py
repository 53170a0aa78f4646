"""FedAvgM: federated averaging with momentum on the server.

Paper: Hsu et al. 2019, Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification.
Rule: `m <- beta m + delta`, `w <- w + server_learning_rate m`, where `delta` is FedAvg's mean of `w_i - w`.
Travels: all weights; BatchNorm statistics are averaged as in FedAvg.
Stays: nothing on devices; `m` on the server. Optimizer slots on devices start fresh every round, and Dropout draws as in
FedAvg.
Deviations: none.
Unseen devices get the global weights.
Hyper-parameters: `beta`, 0..0.99, default 0.9; `server_learning_rate`, 0.01..1, default 1. With 0 and 1 it is FedAvg.
"""

import numpy as np

from odt_sim.hyperparameters import number
from odt_sim.model.weights import Vector
from odt_sim.strategies.server.server_optimizer import Moments, ServerOptimizer


class FedAvgM(ServerOptimizer):
    """FedAvg with momentum on the server.

    Attributes:
        beta: Decay of the momentum, 0 to below 1.
    """

    server_learning_rate: float = number(1.0, above=True, search="tag(log,interval(0.1,2))", kw_only=True)
    beta: float = number(0.9, 0, 1, below=True, search="interval(0.3,0.97)")

    def begin(self, size: int) -> Moments:
        """Return an `m` of zeros."""
        return {"m": np.zeros(size, np.float32)}

    def step(self, moments: Moments, delta: Vector) -> Moments:
        """Add the update to the decayed momentum."""
        return {"m": self.beta * moments["m"] + delta}

    def direction(self, moments: Moments) -> Vector:
        """Return `m`."""
        return moments["m"]
