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

from typing import Unpack

from odt_sim._support.checks import checked
from odt_sim.model.weights import Vector
from odt_sim.strategies.averaging import Averaging
from odt_sim.strategies.server_optimizer import AdaptiveServerOptimizer


class FedAdam(AdaptiveServerOptimizer):
    """FedAvg with an Adam step on the server."""

    def __init__(
        self, beta_1: float = 0.9, beta_2: float = 0.99, tau: float = 1e-3, **averaging: Unpack[Averaging]
    ) -> None:
        """Set the optimizer.

        Args:
            beta_1: Decay of the first moment, 0 to below 1.
            beta_2: Decay of the second moment, 0 to below 1.
            tau: Adaptivity, above 0; a smaller value adapts the step size of each parameter more.
            averaging: Settings of `Averaging`.
        """
        super().__init__(beta_1, tau, **averaging)
        self.beta_2 = checked("beta_2", beta_2, 0, 1, below=True)

    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        """Return the moving mean of the squares."""
        return self.beta_2 * v + (1 - self.beta_2) * squared
