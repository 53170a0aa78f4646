"""FedAMP: devices learn from those whose models are like their own.

Huang et al. 2021, Personalized Cross-Silo Federated Learning on Non-IID Data, algorithm 1.
Rule: the server keeps each device's w_i and sends it `u_i = sum_j x_ij w_j`, with `x_ij = alpha / sigma exp(-|w_i - w_j|^2 /
sigma)` for the others and `x_ii` what is left to 1; where the others' sum is above 1 it is scaled down to 1 (the paper asks
for an alpha so small that it is not). The device trains from u_i with the proximal term `regularization / alpha (w - u_i)`,
and w_i is the outcome. A device's user gets w_i.
Travels: u_i down, w_i up, BatchNorm statistics included, which the distances leave out. Stays: w_i. The optimizer's slots
start fresh every round, and Dropout draws as in FedAvg. The server holds w_i and u_i of every device, and up to five times as
much while it mixes them: 40 GB for 1,000 devices of 1 million parameters. It is for few devices with much data, the silos of
its title.
Devices of which the server has no model yet, such as unseen ones, receive the mean of all w_i; without a w_i of their own
they train one for `unseen_epochs` before they are deployed to.
Hyper-parameters: `sigma`, above 0, default 10: the squared distance at which an influence has fallen to 1/e; `alpha`, above 0
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
    """Each device receives a mixture of all models, in which those like its own weigh most."""

    needs = frozenset({"gradient_offset"})
    keeps_updates = True

    def __init__(
        self, sigma: float = 10.0, alpha: float = 1.0, regularization: float = 0.1, unseen_epochs: int = 10
    ) -> None:
        """Sets who listens to whom, and how much.

        Args:
            sigma: The squared distance at which an influence has fallen to 1/e.
            alpha: The server's step size.
            regularization: How near devices stay to the mixture they received.
            unseen_epochs: The epochs for which a device that has no model of its own trains one before it is deployed to.
        """
        self.sigma = checked("sigma", sigma, 0, above=True)
        self.alpha = checked("alpha", alpha, 0, self.sigma, above=True)
        self.regularization = checked("regularization", regularization, 0)
        self.unseen_epochs = checked_count("unseen_epochs", unseen_epochs)

    def init(self, initial: Weights) -> ServerState:
        """Returns the exported weights for all devices."""
        return ServerState({"mean": super().init(initial).weights})

    def message(self, broadcast: Tensors, device: int) -> Tensors:
        """Returns the device's own mixture, or the mean where the server does not know the device."""
        return {"weights": broadcast.get(f"mixture.{device}", broadcast["mean"])}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains from the mixture, near it, and sends the outcome itself."""
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
        """Mixes the models anew for each device that the server knows."""
        sent = {str(id): weights_of(update.tensors) for id, update in updates.each.items()}
        known = {**{name: weights_of(state.private, name) for name in state.private}, **sent}
        models = {name: known[name] for name in sorted(known, key=int)}  # so that sums are those of a run that went on
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
        """Returns the share of each model in each device's mixture, `[devices, devices]`: rows sum to 1.

        Args:
            w: `[devices, floats]`, the models' trainable parameters.
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
        """Returns the device's own model."""
        recall(device)
        if "own" not in device.state:
            self._train(device, weights_of(broadcast), self.unseen_epochs)
        return device.weights
