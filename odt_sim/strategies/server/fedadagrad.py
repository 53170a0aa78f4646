"""FedAdagrad: Adagrad on the server.

Paper: Reddi et al. 2021, Adaptive Federated Optimization, algorithm 2.
Rule: `m <- beta_1 m + (1 - beta_1) delta`, `v <- v + delta^2`, `w <- w + server_learning_rate m / (sqrt(v) + tau)`, where
`delta` is FedAvg's mean of `w_i - w`; `m` starts at 0 and `v` at `tau^2`, without bias correction.
Travels: all weights; BatchNorm statistics are averaged as in FedAvg.
Stays: nothing on devices; `m` and `v` on the server. Optimizer slots on devices start fresh every round, and Dropout
draws as in FedAvg.
Deviations: none.
Unseen devices get the global weights.
Hyper-parameters: `server_learning_rate`, 0.001..1, default 0.1; `beta_1`, 0..0.99, default 0 as in the paper's
experiments; `tau`, the adaptivity, 1e-5..0.1, default 0.001.
"""

from odt_sim.model.weights import Vector
from odt_sim.strategies.server.server_optimizer import AdaptiveServerOptimizer


class FedAdagrad(AdaptiveServerOptimizer):
    """FedAvg with an Adagrad step on the server."""

    beta_1 = 0.0

    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        """Add up the squares."""
        return v + squared
