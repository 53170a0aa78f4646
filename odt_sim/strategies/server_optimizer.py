"""Server optimizers: the mean of the devices' updates serves as the (negative) gradient of a step on the server.

Reddi et al. 2021, Adaptive Federated Optimization, algorithms 1 and 2: what FedAvgM, FedAdam, FedYogi and FedAdagrad share.
Only what has a gradient is stepped with moments: BatchNorm statistics are averaged as in FedAvg.
"""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from odt_sim.hyperparameters import checked
from odt_sim.model.weights import Vector, Weights
from odt_sim.strategies.base import ServerState, Strategy, Updates, array_of, trained_by_gradients, weights_of

Moments = Mapping[str, Vector]


class ServerOptimizer(Strategy):
    """FedAvg whose server steps by an optimizer: a subclass says which moments it keeps, and where they point to."""

    def __init__(self, server_learning_rate: float) -> None:
        """Sets the server's step size.

        Args:
            server_learning_rate: By which the direction is multiplied.
        """
        self.server_learning_rate = checked("server_learning_rate", server_learning_rate, 0, above=True)

    @abstractmethod
    def begin(self, size: int) -> Moments:
        """Returns the moments `[size]` float32, by name, before the first round."""

    @abstractmethod
    def step(self, moments: Moments, delta: Vector) -> Moments:
        """Returns the moments after a round whose mean update is `delta`, `[size]`."""

    @abstractmethod
    def direction(self, moments: Moments) -> Vector:
        """Returns where moments point to, `[size]`."""

    def init(self, initial: Weights) -> ServerState:
        """Begins with fresh moments."""
        state = super().init(initial)
        return ServerState(state.broadcast, dict(self.begin(trained_by_gradients(state.weights.layout).size)))

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Takes a step of the optimizer; statistics become the devices' mean."""
        averaged = super().aggregate(state, updates)
        layout = trained_by_gradients(state.weights.layout)
        before = {name: array_of(moment) for name, moment in state.private.items()}
        moments = self.step(before, weights_of(updates.mean).select(layout).vector)
        change = Weights(layout, self.direction(moments)) * self.server_learning_rate
        weights = averaged.weights.replace(state.weights.select(layout) + change)
        return ServerState({**averaged.broadcast, "weights": weights}, dict(moments))


class AdaptiveServerOptimizer(ServerOptimizer):
    """Steps along `m / (sqrt(v) + tau)`: `m <- beta_1 m + (1 - beta_1) delta`, and a subclass says what becomes of `v`."""

    def __init__(self, server_learning_rate: float, beta_1: float, tau: float) -> None:
        """Sets the step size, the momentum and the adaptivity.

        Args:
            server_learning_rate: The server's step size.
            beta_1: How much of the first moment is kept from round to round.
            tau: The smaller, the more each parameter gets a step size of its own.
        """
        super().__init__(server_learning_rate)
        self.beta_1 = checked("beta_1", beta_1, 0, 1, below=True)
        self.tau = checked("tau", tau, 0, above=True)

    @abstractmethod
    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        """Returns the second moment after a round whose mean update has these squares."""

    def begin(self, size: int) -> Moments:
        """Returns `m` 0 and `v` `tau^2`."""
        return {"m": np.zeros(size, np.float32), "v": np.full(size, self.tau**2, np.float32)}

    def step(self, moments: Moments, delta: Vector) -> Moments:
        """Moves both moments."""
        m = self.beta_1 * moments["m"] + (1 - self.beta_1) * delta
        return {"m": m, "v": self.second_moment(moments["v"], delta**2)}

    def direction(self, moments: Moments) -> Vector:
        """Returns `m / (sqrt(v) + tau)`."""
        return np.divide(moments["m"], np.sqrt(moments["v"]) + self.tau, dtype=np.float32)
