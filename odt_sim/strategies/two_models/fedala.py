"""FedALA: a device mixes the received model with its own, with learned weights.

Paper: Zhang et al. 2023, FedALA: Adaptive Local Aggregation for Personalized Federated Learning, algorithm 1.
Rule: with the received w and the head v of the device's model after its last round, local training starts from w with
the head `h = v + a (w - v)`, where a has a weight in 0..1 for each parameter of the head. Before that, on each batch of
a share `sample` of the examples, `a <- clip(a - rate g(h) (w - v), 0, 1)`, with the gradient g(h) of the loss with
respect to the head. a starts at 1 and is learned in one pass per round; the first time, passes repeat until the
standard deviation of the losses of the last 10 is below 0.1. The server averages the trained models. A device's user
gets w with h, after another pass that learns a.
Travels: all weights, BatchNorm statistics included, as in FedAvg.
Stays: v and a. Plain SGD only, without slots; Dropout draws as in FedAvg.
Deviations: the head replaces the paper's last p layers, so that a part of the model trains alone; for g(h), the body
runs without Dropout and with its BatchNorm statistics, if the model has embeddings. The first learning of a ends after
at most 100 passes. The clock of `fleet.profiles` counts it as one pass, as in later rounds.
Unseen devices, which have no v, get the global weights.
Hyper-parameters: `rate`, above 0, default 1 (eta); `sample`, above 0 to 1, default 0.8 (s).
"""

import numpy as np

from odt_sim.device.batches import Batch
from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.hyperparameters import number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Vector, Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of

HEAD, SHARES = "head", "shares"
"""Names in `device.state`: v, and a as an array of the size of v."""
RECENT, SPREAD, MOST = 10, 0.1, 100
"""The first learning of a ends if the losses of the last 10 passes deviate by less than 0.1, or after 100 passes."""


class FedALA(Strategy):
    """FedAvg, with training on each device starting from a learned mixture of the received head and its own.

    Attributes:
        rate: Step size of the mixture's weights, above 0.
        sample: Share of a device's batches on which they are learned, above 0, at most 1.
    """

    needs = frozenset({"plain_sgd", "learning_rate", "head", "train_head"})
    rate: float = number(1.0, above=True, search="tag(log,interval(0.1,10))")
    sample: float = number(0.8, 0, 1, above=True, search="interval(0.2,1)")

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train from the mixture, and keep the trained head."""
        shared = weights_of(broadcast)
        self._start(device, shared)
        losses = device.train()
        trained = device.weights
        device.state[HEAD] = _head(trained)
        return Update({"weights": trained.select(shared.layout) - shared}, len(device.train_examples), losses)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the received weights with the mixed head."""
        self._start(device, weights_of(broadcast))
        return device.weights

    def _start(self, device: Device, shared: Weights) -> None:
        """Set the initial weights of a device's training, and keep the weights of its mixture."""
        device.restore(shared)
        if HEAD not in device.state:
            return
        mixture = self._learned(device, weights_of(device.state, HEAD), _head(shared))
        device.restore(shared)
        device.begin_again()
        device.restore(mixture)

    def _learned(self, device: Device, own: Weights, received: Weights) -> Weights:
        """Learn the weights of the mixture, keep them, and return the mixture."""
        known = device.state.get(SHARES)
        shares = np.ones_like(own.vector) if known is None else array_of(known)
        steps = TrainingPlan(1).steps_of(len(device.train_examples), device.model.batch_size)
        batches = list(device.batches(TrainingPlan(steps=max(1, int(self.sample * steps))), "mixture"))
        losses: list[float] = []
        while len(losses) < (MOST if known is None else 1):
            if len(losses) > RECENT and np.std(losses[-RECENT:]) < SPREAD:
                break
            total = 0.0
            for batch in batches:
                shares, loss = self._step(device, batch, own, received, shares)
                total += loss
            losses.append(total / len(batches))
        device.state[SHARES] = shares
        return _mixture(own, received, shares)

    def _step(
        self, device: Device, batch: Batch, own: Weights, received: Weights, shares: Vector
    ) -> tuple[Vector, float]:
        """Return the shares after a batch, and the loss before it."""
        before = _mixture(own, received, shares)
        device.restore(before)
        loss = device.train_step(batch, learning_rate=1.0, group="head")
        gradient = before - _head(device.weights)
        return np.clip(shares - np.float32(self.rate) * gradient.vector * (received - own).vector, 0, 1), loss


def _mixture(own: Weights, received: Weights, shares: Vector) -> Weights:
    return Weights(own.layout, own.vector + shares * (received - own).vector)


def _head(weights: Weights) -> Weights:
    return weights.select(weights.layout.select(lambda p: p.group == "head" and p.role == "trainable"))
