"""A model of the device's own beside the global one: what the strategies have in common that train one.

An unseen device trains its own for 10 epochs unless told otherwise. So many were chosen on the validation examples of 4
unseen devices of 20 with the digits (dirichlet 0.3, the CNN, after 20 rounds with a learning rate of 0.1, seeds 0 to 2),
whose mean losses after 5, 10, 20 epochs were: Ditto 1.10, 0.82, 1.61; interpolation 0.48, 0.35, 0.26; APFL 0.56, 0.44, 0.51;
FedAMP 0.80, 0.58, 0.55; FedFomo 0.68, 0.45, 0.40; pFedMe 1.59, 1.28, 0.88. MR-MTL trains it as Ditto does.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import checked, checked_count
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import (
    NOTHING,
    Strategy,
    Tensors,
    keep,
    keep_optimizer,
    recall,
    recall_optimizer,
    weights_of,
)


class HeldNear(Strategy):
    """What devices' users get are models of their own that a proximal term holds near a shared one; `local` trains them."""

    needs = frozenset({"gradient_offset"})

    def __init__(self, regularization: float = 1.0, unseen_epochs: int = 10) -> None:
        """Sets how near the devices' models stay.

        Args:
            regularization: The factor of the proximal term.
            unseen_epochs: The epochs for which a device that has no model of its own trains one before it is deployed to.
        """
        self.regularization = checked("regularization", regularization, 0)
        self.unseen_epochs = checked_count("unseen_epochs", unseen_epochs)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the device's own model."""
        return own_model(device, weights_of(broadcast), self.regularization, self.unseen_epochs)


def train_own_model(
    device: Device, shared: Weights, regularization: float = 0.0, epochs: int | None = None
) -> NDArray[np.float32]:
    """Trains the model of the device's own, v, in the batches of the round: `v <- v - lr (g(v) + regularization (v - w))`.

    It goes on from the v and the optimizer's slots that the device kept, and where there are none from w.

    Args:
        device: Holds v afterwards.
        shared: The global weights w.
        regularization: The factor of the proximal term.
        epochs: Passes over the device's training examples; the plan's by default.

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
    """Keeps the model that the device holds as its own, and the optimizer's slots."""
    keep_whole(device, device.weights)
    keep_optimizer(device)


def keep_whole(device: Device, weights: Weights) -> None:
    """Keeps all that training changes as the device's own."""
    keep(device, weights, NOTHING)


def own_model(device: Device, shared: Weights, regularization: float, unseen_epochs: int) -> Weights:
    """Returns the device's own model; one that has none yet, such as an unseen device, trains it from w first.

    Args:
        device: Whose.
        shared: The global weights w.
        regularization: The factor of the proximal term of that training.
        unseen_epochs: Its epochs.
    """
    recall(device)
    if "own" not in device.state:
        train_own_model(device, shared, regularization, unseen_epochs)
    return device.weights
