"""FedAdam: Adam on the server.

Paper: Reddi et al. 2021, Adaptive Federated Optimization, algorithm 2.
Rule: `m <- beta_1 m + (1 - beta_1) delta`, `v <- beta_2 v + (1 - beta_2) delta^2`,
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

from odt_sim.hyperparameters import number
from odt_sim.model.weights import Vector
from odt_sim.strategies.server.server_optimizer import AdaptiveServerOptimizer


class FedAdam(AdaptiveServerOptimizer):
    """FedAvg with an Adam step on the server.

    Attributes:
        beta_2: Decay of the second moment, 0 to below 1.
    """

    beta_2: float = number(0.99, 0, 1, below=True)

    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        """Return the moving mean of the squares."""
        return self.beta_2 * v + (1 - self.beta_2) * squared
