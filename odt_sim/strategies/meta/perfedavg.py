"""Per-FedAvg, first order: a model trained to perform well after one step on a device's examples.

Paper: Fallah et al. 2020, Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach, algorithm 1 with the first-order approximation (FO), which omits the Hessian.
Rule: on the device `w' = w - a g(w; B1)`, `w <- w - b g(w'; B2)` with two independent batches, for `train.epochs` or
`train.steps`; b is `train.learning_rate`. The server averages with equal weights. A device's user gets w after one step
of size a along the gradient over all training examples of the device.
Travels: w, BatchNorm statistics included, which both batches update.
Stays: nothing. Plain SGD only, without slots; Dropout draws new masks for each gradient.
Deviations: none.
Unseen devices take the same step as all others.
Hyper-parameters: `adaptation_rate`, above 0 to 1, default 0.01 (alpha in the paper); `weighting`, default `uniform`;
the baseline program of pFedMe's authors weights by examples.
"""

import numpy as np

from odt_sim.device.batches import Batch
from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.hyperparameters import number
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.state import receive


class PerFedAvg(Strategy):
    """Average of models that are trained for their performance after one more step.

    Attributes:
        adaptation_rate: Step size of the personalization step, above 0, at most 1.
    """

    needs = frozenset({"plain_sgd", "learning_rate"})
    weighting = "uniform"
    adaptation_rate: float = number(0.01, 0, 1, above=True, search="tag(log,interval(0.001,0.3))")

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Descend along gradients taken after a personalization step."""
        shared = weights_of(broadcast)
        device.restore(shared)
        losses = [
            self._step(device, first, second)
            for first, second in zip(device.batches(), device.batches(purpose="second"), strict=True)
        ]
        return Update(
            {"weights": device.change_since(shared)}, len(device.train_examples), np.array(losses, np.float32)
        )

    def _step(self, device: Device, first: Batch, second: Batch) -> float:
        """Apply the change of a step at the adapted weights to the weights before them; return the loss before both."""
        layout = device.model.trainable_layout
        before = device.weights.select(layout)
        loss = device.train_step(first, self.adaptation_rate)
        adapted = device.weights.select(layout)
        device.train_step(second)
        device.restore(before + (device.weights.select(layout) - adapted))
        return loss

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Take one step along the mean gradient over the training examples."""
        weights = receive(device, broadcast)
        layout = device.model.trainable_layout
        start, moved = weights.select(layout), Weights.zeros(layout)
        for batch in device.batches(TrainingPlan(1)):
            device.restore(weights)
            device.train_step(batch, self.adaptation_rate)
            moved += (device.weights.select(layout) - start) * (batch.examples / len(device.train_examples))
        return weights.replace(start + moved)
