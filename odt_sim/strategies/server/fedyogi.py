"""FedYogi: Yogi on the server, with a second moment that shrinks slowly.

Paper: Reddi et al. 2021, Adaptive Federated Optimization, algorithm 2.
Rule: `m <- beta_1 m + (1 - beta_1) delta`, `v <- v - (1 - beta_2) delta^2 sign(v - delta^2)`,
`w <- w + server_learning_rate m / (sqrt(v) + tau)`, where `delta` is FedAvg's mean of `w_i - w`; `m` starts at 0 and `v`
at `tau^2`, without bias correction.
Travels: all weights; BatchNorm statistics are averaged as in FedAvg.
Stays: nothing on devices; `m` and `v` on the server. Optimizer slots on devices start fresh every round, and Dropout
draws as in FedAvg.
Deviations: none.
Unseen devices get the global weights.
Hyper-parameters: `server_learning_rate`, 0.001..1, default 0.1; `beta_1`, 0..0.99, default 0.9; `beta_2`, 0..0.999,
default 0.99; `tau`, the adaptivity, 1e-5..0.1, default 0.001.
"""

import numpy as np

from odt_sim.model.weights import Vector
from odt_sim.strategies.server.fedadam import FedAdam


class FedYogi(FedAdam):
    """FedAdam with a second moment that decreases as slowly as it grows."""

    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        """Move towards the squares by at most a fraction of them."""
        moved: Vector = v - (1 - self.beta_2) * squared * np.sign(v - squared)
        return moved
