"""FedDyn: a dynamic regularizer that aligns local and global optima.

Paper: Acar et al. 2021, Federated Learning Based on Dynamic Regularization, algorithm 1.
Rule: a local step uses `g - h_i + alpha (w_i - w)` instead of the gradient `g`; then `h_i <- h_i - alpha (w_i - w)`.
The server computes `h <- h - alpha/N sum_i (w_i - w)`, where `N` is the number of devices that take part in training,
and `w <- mean_i w_i - h / alpha`. With `alpha` 0, `h` stays 0 and is omitted: FedAvg with equal weights.
Travels: all weights.
Stays: `h_i`, as large as the trainable weights and initially 0, on the device; `h` on the server. BatchNorm statistics
are averaged as in FedAvg and not regularized; optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: none.
Optimizers other than plain SGD minimize the same objective if the model was exported with `gradient_offset=True`.
Unseen devices get the global weights.
Hyper-parameters: `alpha`, 0.001..0.1, default 0.01. The paper trains each device close to the optimum of its objective;
with few steps, choose a larger `alpha`.
"""

from dataclasses import replace

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import number
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import receive, trained_by_gradients


class FedDyn(Strategy):
    """FedAvg on dynamically regularized objectives; the server also sums the individual updates.

    Attributes:
        alpha: Factor of the regularizer, at least 0; 0 is FedAvg with equal weights.
    """

    needs = frozenset({"gradient_offset"})
    keeps_updates = True
    asynchronous = False
    weighting = "uniform"
    alpha: float = number(0.01, search="tag(log,interval(0.001,1))")

    def init(self, initial: Weights) -> ServerState:
        """Return the exported weights and an `h` of zeros."""
        state = super().init(initial)
        h = Weights.zeros(trained_by_gradients(state.weights.layout))
        return ServerState(state.broadcast, {"h": h})

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Minimize `loss - <h_i, w_i> + alpha/2 |w_i - w|^2`."""
        trainable = trained_by_gradients(weights_of(broadcast).layout)
        h = weights_of({"h": Weights.zeros(trainable), **device.state}, "h")
        pull = -self.alpha * receive(device, broadcast).select(device.model.trainable_layout)
        device.set_gradient_offset(pull.replace(pull.select(trainable) - h), self.alpha)
        update = super().local(device, broadcast)
        device.state["h"] = h - self.alpha * weights_of(update.tensors).select(trainable)
        return update

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Move `h` by the sum of the updates, and the weights by their mean and by `h`."""
        h = weights_of(state.private, "h")
        moved = np.zeros(h.layout.size)
        for update in updates.each.values():
            moved += weights_of(update.tensors).select(h.layout).vector
        total = Weights(h.layout, moved.astype(np.float32))
        h = h - (self.alpha / updates.participants) * total
        change = weights_of(updates.mean)
        if self.alpha:
            change = change.replace(change.select(h.layout) - h / self.alpha)
        after = super().aggregate(state, replace(updates, mean={"weights": change}))
        return ServerState(after.broadcast, {"h": h})
