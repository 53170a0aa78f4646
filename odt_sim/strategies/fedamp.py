"""FedAMP: each device learns from the devices with similar models.

Paper: Huang et al. 2021, Personalized Cross-Silo Federated Learning on Non-IID Data, algorithm 1.
Rule: the server keeps each device's w_i and sends it `u_i = sum_j x_ij w_j`, with
`x_ij = alpha / sigma exp(-|w_i - w_j|^2 / sigma)` for `j != i` and `x_ii` as the rest to 1. The device trains from u_i
with the proximal term `regularization / alpha (w - u_i)`; the result is w_i. A device's user gets w_i.
Travels: u_i down, w_i up, BatchNorm statistics included; distances leave the statistics out.
Stays: w_i. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Memory: the server holds w_i and u_i of every device, and up to five times as much while it mixes them: 40 GB for 1,000
devices with 1 million parameters. The algorithm is meant for few devices with much data.
Deviations: where the `x_ij` of a device add up to more than 1, they are scaled down to 1; the paper asks for a smaller
alpha.
Unseen devices and others without a model on the server receive the mean of all w_i, and train their own for
`unseen_epochs` before deployment.
Hyper-parameters: `sigma`, above 0, default 10: the squared distance at which an influence falls to 1/e; `alpha`, above 0
to sigma, default 1; `regularization`, 0..10, default 0.1 (lambda); `unseen_epochs`, 0..50, default 10.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import checked, checked_count
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import (
    ServerState,
    Strategy,
    Tensors,
    Update,
    Updates,
    recall,
    trained_by_gradients,
    weights_of,
)
from odt_sim.strategies.own_model import keep_whole


class FedAMP(Strategy):
    """Each device receives a mixture of all models, weighted by their similarity to its own."""

    needs = frozenset({"gradient_offset"})
    keeps_updates = True
    asynchronous = False

    def __init__(
        self, sigma: float = 10.0, alpha: float = 1.0, regularization: float = 0.1, unseen_epochs: int = 10
    ) -> None:
        """Set the weights of the mixtures.

        Args:
            sigma: Squared distance at which an influence falls to 1/e, above 0.
            alpha: Step size of the server, above 0, at most sigma.
            regularization: Factor of the proximal term towards the received mixture, at least 0.
            unseen_epochs: Epochs for which a device without a personal model trains one before deployment.
        """
        self.sigma = checked("sigma", sigma, 0, above=True)
        self.alpha = checked("alpha", alpha, 0, self.sigma, above=True)
        self.regularization = checked("regularization", regularization, 0)
        self.unseen_epochs = checked_count("unseen_epochs", unseen_epochs)

    def init(self, initial: Weights) -> ServerState:
        """Return the exported weights for all devices."""
        return ServerState({"mean": super().init(initial).weights})

    def message(self, broadcast: Tensors, device: int) -> Tensors:
        """Return the device's mixture, or the mean if the server has no model of the device."""
        return {"weights": broadcast.get(f"mixture.{device}", broadcast["mean"])}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train from the mixture, near it, and send the trained weights."""
        losses = self._train(device, weights_of(broadcast), None)
        trained = device.weights
        keep_whole(device, trained)
        whole = trained.select(weights_of(broadcast).layout)
        return Update({"weights": whole}, len(device.train_examples), losses)

    def _train(self, device: Device, mixture: Weights, epochs: int | None) -> NDArray[np.float32]:
        pull = self.regularization / self.alpha
        device.restore(mixture)
        device.set_gradient_offset(-pull * mixture.select(device.model.trainable_layout), pull)
        losses = device.train(epochs)
        device.set_gradient_offset(None)
        return losses

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Compute a new mixture for each device with a model on the server."""
        sent = {str(id): weights_of(update.tensors) for id, update in updates.each.items()}
        known = {**{name: weights_of(state.private, name) for name in state.private}, **sent}
        models = {name: known[name] for name in sorted(known, key=int)}  # a resumed run adds in the same order
        layout = weights_of(state.broadcast, "mean").layout
        stacked = np.stack([model.vector for model in models.values()], dtype=np.float64)
        compared = trained_by_gradients(layout)
        trained = stacked
        if compared != layout:
            trained = np.stack([model.select(compared).vector for model in models.values()], dtype=np.float64)
        mixtures = (self._influences(trained) @ stacked).astype(np.float32)
        own = {f"mixture.{name}": Weights(layout, row) for name, row in zip(models, mixtures, strict=True)}
        mean = Weights(layout, stacked.mean(axis=0).astype(np.float32))
        return ServerState({"mean": mean, **own}, models)

    def _influences(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weight of each model in each device's mixture, `[devices, devices]`; rows sum to 1.

        Args:
            w: `[devices, floats]`, the trainable parameters of the models.
        """
        products = w @ w.T
        squares = products.diagonal()
        distances = np.maximum(squares[:, np.newaxis] + squares - 2 * products, 0)
        shares = self.alpha / self.sigma * np.exp(-distances / self.sigma)
        np.fill_diagonal(shares, 0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
        np.fill_diagonal(shares, 1 - shares.sum(axis=1))
        return np.asarray(shares)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's personal model."""
        recall(device)
        if "own" not in device.state:
            self._train(device, weights_of(broadcast), self.unseen_epochs)
        return device.weights
