"""FedAMP: each device learns from the devices with similar models.

Paper: Huang et al. 2021, Personalized Cross-Silo Federated Learning on Non-IID Data, algorithm 1.
Rule: the server keeps each device's w_i and sends it `u_i = sum_j x_ij w_j`, with
`x_ij = alpha / sigma exp(-|w_i - w_j|^2 / sigma)` for `j != i` and `x_ii` as the remainder, so that they sum to 1. The
device trains from u_i with the proximal term `regularization / alpha (w - u_i)`; the result is w_i. A device's user
gets w_i.
Travels: u_i down, w_i up, BatchNorm statistics included; distances ignore the statistics.
Stays: w_i. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Memory: the server holds w_i of every device, 4 GB for 1,000 devices with 1 million parameters. It computes u_i for each
device of a cohort in one pass over all models. The algorithm is meant for few devices with much data.
Deviations: if the `x_ij` of a device add up to more than 1, they are scaled down to 1; the paper requires a smaller
alpha.
Unseen devices, and others without a model on the server, receive the mean of all w_i and train their own model for
`unseen_epochs` before deployment.
Hyper-parameters: `sigma`, above 0, default 10: the squared distance at which an influence falls to 1/e; `alpha`, above 0
to sigma, default 1; `regularization`, 0..10, default 0.01, which validates best on three tasks (docs/evaluation.md; lambda);
`unseen_epochs`, 0..50, default 10.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import Range, check_value
from odt_sim.device.device import Device
from odt_sim.hyperparameters import count, number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Vector, Weights
from odt_sim.strategies.base import AVERAGING, ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import recall, trained_by_gradients
from odt_sim.strategies.two_models.personal import keep_whole


class FedAMP(Strategy):
    """Each device receives a mixture of all models, weighted by their similarity to its own.

    Attributes:
        sigma: Squared distance at which an influence falls to 1/e, above 0.
        alpha: Step size of the server, above 0, at most sigma.
        regularization: Factor of the proximal term towards the received mixture, at least 0.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a personal model before
            deployment.
    """

    needs = frozenset({"gradient_offset"})
    keeps_updates = True
    asynchronous = False
    unused = AVERAGING
    sigma: float = number(10.0, above=True, search="tag(log,interval(1,100))")
    alpha: float = number(1.0, above=True, search="tag(log,interval(0.01,1))")
    regularization: float = number(0.01, search="tag(log,interval(0.01,10))")
    unseen_epochs: int = count(10)

    def __post_init__(self) -> None:
        """Check that alpha is at most sigma."""
        check_value("strategy.alpha", float, self.alpha, Range(above=0, most=self.sigma))

    def init(self, initial: Weights) -> ServerState:
        """Return the exported weights for all devices."""
        return ServerState({"mean": super().init(initial).weights})

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return the device's mixture, or the mean if the server has no model of the device."""
        if str(device) not in state.private:
            return {"weights": state.broadcast["mean"]}
        models = {name: weights_of(state.private, name) for name in _in_order(state.private)}
        return {"weights": self._mixture(models, str(device))}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train from the mixture with a proximal term towards it, and send the trained weights."""
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
        """Replace the models of the devices that contributed."""
        sent = {str(id): weights_of(update.tensors) for id, update in updates.each.items()}
        known = {**state.private, **sent}
        models = {name: known[name] for name in _in_order(known)}
        layout = weights_of(state.broadcast, "mean").layout
        total = np.zeros(layout.size)
        for model in models.values():
            total += array_of(model)
        return ServerState({"mean": Weights(layout, (total / len(models)).astype(np.float32))}, models)

    def _mixture(self, models: Mapping[str, Weights], device: str) -> Weights:
        """Return the mixture for one device from all models."""
        own = models[device]
        compared = trained_by_gradients(own.layout)
        shares = self._influences(
            [model.select(compared).vector for model in models.values()], list(models).index(device)
        )
        mixed = np.zeros(own.layout.size)
        for share, model in zip(shares, models.values(), strict=True):
            mixed += share * model.vector
        return Weights(own.layout, mixed.astype(np.float32))

    def _influences(self, models: Sequence[Vector], device: int) -> NDArray[np.float64]:
        """Return the weight of each model in a device's mixture, `[devices]`; their sum is 1.

        Args:
            models: The trainable parameters of each device's model.
            device: The index of the device's model.
        """
        apart = (np.subtract(model, models[device], dtype=np.float64) for model in models)
        shares = self.alpha / self.sigma * np.exp([-(d @ d) / self.sigma for d in apart])
        shares[device] = 0
        shares /= max(shares.sum(), 1)
        shares[device] = 1 - shares.sum()
        return np.asarray(shares)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's personal model."""
        recall(device)
        if "own" not in device.state:
            self._train(device, weights_of(broadcast), self.unseen_epochs)
        return device.weights


def _in_order(ids: Iterable[str]) -> list[str]:
    """Return ids in ascending order, so that a resumed run adds the models in the same order."""
    return sorted(ids, key=int)
