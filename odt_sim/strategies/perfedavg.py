"""Per-FedAvg, first order: a model that is good after one step on a device's own examples.

Fallah et al. 2020, Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach,
algorithm 1, with its first-order approximation (FO), which leaves out the Hessian.
Rule: on the device `w' = w - a g(w; B1)`, `w <- w - b g(w'; B2)` with two batches drawn apart, for `train.epochs` or
`train.steps`; b is `train.learning_rate`. The server averages, all devices alike unless `weighted`. A device's user gets
w after one step of size a along the gradient over all the device's training examples.
Travels: w, BatchNorm statistics included, which move with both batches. Stays: nothing. The rule is one of plain SGD, without
slots; Dropout draws new masks for each gradient.
Unseen devices take the same one step as all do.
Hyper-parameters: `adaptation_rate`, above 0 to 1, default 0.01 (a, alpha in the paper); `weighted`, default false:
whether devices count by their training examples, as in the program that pFedMe's authors compare with.
"""

import numpy as np

from odt_sim.device.batches import Batch
from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.hyperparameters import checked, checked_flag
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of


class PerFedAvg(Strategy):
    """Averages models that were trained for what they are one step later."""

    needs = frozenset({"plain_sgd", "learning_rate"})

    def __init__(self, adaptation_rate: float = 0.01, weighted: bool = False) -> None:
        """Sets the step of personalization.

        Args:
            adaptation_rate: Its size.
            weighted: Whether a device counts in the mean by its training examples, and not all alike.
        """
        self.adaptation_rate = checked("adaptation_rate", adaptation_rate, 0, 1, above=True)
        self.weighted = checked_flag("weighted", weighted)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Descends along gradients that are taken one step further on."""
        shared = weights_of(broadcast)
        device.restore(shared)
        losses = [
            self._step(device, first, second)
            for first, second in zip(device.batches(), device.batches(purpose="second"), strict=True)
        ]
        delta = device.weights.select(shared.layout) - shared
        weight = len(device.train_examples) if self.weighted else 1.0
        return Update({"weights": delta}, weight, np.array(losses, np.float32))

    def _step(self, device: Device, first: Batch, second: Batch) -> float:
        """Changes the device's weights by what a step from where another one leads would change there."""
        layout = device.model.trainable_layout
        before = device.weights.select(layout)
        loss = device.train_step(first, self.adaptation_rate)
        adapted = device.weights.select(layout)
        device.train_step(second)
        after = device.weights
        device.restore(after.replace(before + (after.select(layout) - adapted)))
        return loss

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Takes one step along the mean gradient over the device's training examples."""
        weights = super().deploy(device, broadcast)
        layout = device.model.trainable_layout
        start, moved = weights.select(layout), Weights.zeros(layout)
        for batch in device.batches(TrainingPlan(1)):
            device.restore(weights)
            device.train_step(batch, self.adaptation_rate)
            moved += (device.weights.select(layout) - start) * (batch.examples / len(device.train_examples))
        return weights.replace(start + moved)
