"""Server optimizers, which use the mean update as negative gradient of a step on the server.

Reddi et al. 2021, Adaptive Federated Optimization, algorithms 1 and 2: the common part of FedAvgM, FedAdam, FedYogi and
FedAdagrad. The optimizer updates only parameters with a gradient; BatchNorm statistics are averaged as in FedAvg.
"""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from odt_sim.hyperparameters import number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Vector, Weights
from odt_sim.strategies.base import ServerState, Strategy, Updates, weights_of
from odt_sim.strategies.state import trained_by_gradients

Moments = Mapping[str, Vector]


class ServerOptimizer(Strategy):
    """FedAvg with an optimizer step on the server; a subclass defines the moments and the direction."""

    @abstractmethod
    def begin(self, size: int) -> Moments:
        """Return the initial moments by name, each `[size]` float32."""

    @abstractmethod
    def step(self, moments: Moments, delta: Vector) -> Moments:
        """Return the moments after a round whose mean update is `delta`, `[size]`."""

    @abstractmethod
    def direction(self, moments: Moments) -> Vector:
        """Return the direction of the step, `[size]`."""

    def init(self, initial: Weights) -> ServerState:
        """Return the exported weights and fresh moments."""
        state = super().init(initial)
        return ServerState(state.broadcast, dict(self.begin(trained_by_gradients(state.weights.layout).size)))

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Take a step on the trainable weights and average the statistics."""
        averaged = super().aggregate(state, updates)
        layout = trained_by_gradients(state.weights.layout)
        before = {name: array_of(moment) for name, moment in state.private.items()}
        moments = self.step(before, weights_of(updates.mean).select(layout).vector)
        change = Weights(layout, self.direction(moments)) * self.server_learning_rate
        weights = averaged.weights.replace(state.weights.select(layout) + change)
        return ServerState({**averaged.broadcast, "weights": weights}, dict(moments))


class AdaptiveServerOptimizer(ServerOptimizer):
    """Optimizer with steps `m / (sqrt(v) + tau)` and `m <- beta_1 m + (1 - beta_1) delta`; a subclass updates `v`.

    Attributes:
        beta_1: Decay of the first moment, 0 to below 1.
        tau: Adaptivity, above 0; a smaller value adapts the step size of each parameter more.
    """

    server_learning_rate: float = number(0.1, above=True, search="tag(log,interval(0.003,1))", kw_only=True)
    beta_1: float = number(0.9, 0, 1, below=True)
    tau: float = number(1e-3, above=True, search="tag(log,interval(0.00001,0.1))")

    @abstractmethod
    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        """Return the second moment after a round, given the squares of the mean update."""

    def begin(self, size: int) -> Moments:
        """Return zeros for `m` and `tau^2` for `v`."""
        return {"m": np.zeros(size, np.float32), "v": np.full(size, self.tau**2, np.float32)}

    def step(self, moments: Moments, delta: Vector) -> Moments:
        """Update both moments."""
        m = self.beta_1 * moments["m"] + (1 - self.beta_1) * delta
        return {"m": m, "v": self.second_moment(moments["v"], delta**2)}

    def direction(self, moments: Moments) -> Vector:
        """Return `m / (sqrt(v) + tau)`."""
        return np.divide(moments["m"], np.sqrt(moments["v"]) + self.tau, dtype=np.float32)
