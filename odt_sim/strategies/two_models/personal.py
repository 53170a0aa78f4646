"""Personal models beside the global one, and personal parts of it, for the strategies that deploy them.

A device that never trained, such as an unseen one, trains its model or part before deployment, by default for 10
epochs. Mean validation losses of 4 unseen devices of 20 (digits, Dirichlet 0.3, CNN, 20 rounds, learning rate 0.1,
seeds 0 to 2) after 5, 10 and 20 epochs: Ditto 1.10, 0.82, 1.61; interpolation 0.48, 0.35, 0.26; APFL 0.56, 0.44, 0.51;
FedAMP 0.80, 0.58, 0.55; FedFomo 0.68, 0.45, 0.40; pFedMe 1.59, 1.28, 0.88; FedPer 0.61, 0.52, 0.45; LG-FedAvg 1.47,
0.97, 0.96. MR-MTL trains its model like Ditto.
"""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.batches import Batch
from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import StrategyError
from odt_sim.hyperparameters import count, number
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, weights_of
from odt_sim.strategies.state import NOTHING, keep, keep_optimizer, recall, recall_optimizer, receive


class HeldNear(Strategy):
    """Base of strategies that deploy personal models, trained in `local` with a proximal term to a shared model.

    Attributes:
        regularization: Factor of the proximal term, at least 0.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a personal model before
            deployment.
    """

    needs = frozenset({"gradient_offset"})
    regularization: float = number(0.01, search="tag(log,interval(0.01,10))")
    unseen_epochs: int = count(10)

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


class OwnPart(Strategy):
    """FedAvg on some groups of parameters; the others stay on the device.

    Attributes:
        own: The groups that stay.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains its own part before
            deployment; 0 keeps the exported one.
    """

    own: ClassVar[frozenset[str]] = frozenset()
    unseen_epochs: int = count(10, kw_only=True)

    def check(self, model: TrainableModel) -> None:
        """Check the model's capabilities, and that the part that stays on the device is trainable.

        Raises:
            StrategyError: A capability is missing, or the part is frozen, so that the strategy would be FedAvg.
        """
        super().check(model)
        if not any(parameter.moves and parameter.group in self.own for parameter in model.parameters):
            own = " and ".join(sorted(self.own))
            raise StrategyError(
                f"strategy {self.name}: keeps the {own} of the model {model.name} on the devices, which is frozen, "
                "so it would equal FedAvg; unfreeze it, choose another layer with model.head, or use strategy=fedavg"
            )

    def shared(self, parameter: Parameter) -> bool:
        """Return whether the parameter is outside the own groups."""
        return parameter.group not in self.own

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the shared part with the device's own part; train the exported one first if the device has none."""
        deployed = receive(device, broadcast)
        if "own" in device.state or not self.unseen_epochs:
            return deployed
        train_own_part(device, weights_of(broadcast), device.batches(TrainingPlan(self.unseen_epochs)))
        return device.weights


def train_own_part(device: Device, shared: Weights, steps: Iterable[Batch]) -> None:
    """Train the parameters that are not shared, restoring the shared ones after every step.

    This needs no special signature and is exact for every optimizer that updates each parameter independently.

    Args:
        device: A device with the shared and the own parameters loaded.
        shared: The parameters to hold fixed.
        steps: Batches from `Device.batches`.
    """
    for batch in steps:
        device.train_step(batch)
        device.restore(shared)
    device.finish()
    device.restore(shared)


def body_group(model: TrainableModel) -> str:
    """Return the group of everything below the head: `body`, or `body_norm` with trainable normalization layers."""
    return "body_norm" if any(p.group == "norm" and p.moves for p in model.parameters) else "body"
