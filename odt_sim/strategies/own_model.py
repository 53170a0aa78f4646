"""Personal models in addition to the global model, shared by the strategies that train both.

An unseen device trains its personal model for 10 epochs by default. The value was chosen on the validation examples of 4
unseen devices of 20 (digits, Dirichlet 0.3, CNN, 20 rounds, learning rate 0.1, seeds 0 to 2). Mean losses after 5, 10
and 20 epochs: Ditto 1.10, 0.82, 1.61; interpolation 0.48, 0.35, 0.26; APFL 0.56, 0.44, 0.51; FedAMP 0.80, 0.58, 0.55;
FedFomo 0.68, 0.45, 0.40; pFedMe 1.59, 1.28, 0.88. MR-MTL trains its model like Ditto.
"""

from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import checked, checked_count
from odt_sim.device.device import Device
from odt_sim.model.weights import Weights
from odt_sim.strategies.averaging import Averaging
from odt_sim.strategies.base import Strategy, Tensors, weights_of
from odt_sim.strategies.state import NOTHING, keep, keep_optimizer, recall, recall_optimizer


class HeldNear(Strategy):
    """Base of strategies that deploy personal models, trained in `local` with a proximal term to a shared model."""

    needs = frozenset({"gradient_offset"})

    def __init__(self, regularization: float = 0.01, unseen_epochs: int = 10, **averaging: Unpack[Averaging]) -> None:
        """Set the strength of the proximal term.

        Args:
            regularization: Factor of the proximal term, at least 0.
            unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a personal model before
                deployment.
            averaging: Settings of `Averaging`.
        """
        super().__init__(**averaging)
        self.regularization = checked("regularization", regularization, 0)
        self.unseen_epochs = checked_count("unseen_epochs", unseen_epochs)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's personal model."""
        return own_model(device, weights_of(broadcast), self.regularization, self.unseen_epochs)


def train_own_model(
    device: Device, shared: Weights, regularization: float = 0.0, epochs: int | None = None
) -> NDArray[np.float32]:
    """Train the personal model v on the round's batches: `v <- v - lr (g(v) + regularization (v - w))`.

    Training resumes from the stored v and optimizer slots, or starts from w.

    Args:
        device: The device; its weights are v afterwards.
        shared: The global weights w.
        regularization: Factor of the proximal term.
        epochs: Passes over the training examples; by default those of the training plan.

    Returns:
        The loss of each step, without the proximal term.
    """
    device.begin_again()
    device.restore(shared)
    recall(device)
    recall_optimizer(device)
    if regularization:
        pull = shared.select(device.model.trainable_layout)
        device.set_gradient_offset(-regularization * pull, regularization)
    losses = device.train(epochs)
    device.set_gradient_offset(None)
    return losses


def keep_own_model(device: Device) -> None:
    """Keep the device's weights as its personal model, with the optimizer's slots."""
    keep_whole(device, device.weights)
    keep_optimizer(device)


def keep_whole(device: Device, weights: Weights) -> None:
    """Keep all trainable weights and statistics as the device's own."""
    keep(device, weights, NOTHING)


def own_model(device: Device, shared: Weights, regularization: float, unseen_epochs: int) -> Weights:
    """Return the device's personal model; train it from w first if the device has none.

    Args:
        device: The device.
        shared: The global weights w.
        regularization: Factor of the proximal term in that training.
        unseen_epochs: Number of epochs of that training.
    """
    recall(device)
    if "own" not in device.state:
        train_own_model(device, shared, regularization, unseen_epochs)
    return device.weights
