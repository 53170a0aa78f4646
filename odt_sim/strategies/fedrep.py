"""Shared representations.

Collins et al. 2021, Exploiting Shared Representations for Personalized Federated Learning, algorithm 1.
Rule: on the device the head trains `head_epochs` with the body frozen, then the body `train.epochs` with the head frozen; the
body is averaged, the head never travels. The paper weighs all devices equally; here they weigh by examples, as in FedAvg.
Travels: body and norm; BatchNorm statistics stand still while the head trains, and are averaged. Stays: the head. The
optimizer's slots start fresh every round, and Dropout draws as in FedAvg.
Unseen devices train the exported head under the shared body before they are deployed to, as the paper does.
Hyper-parameters: `head_epochs`, 1..50, default 10; `unseen_epochs`, 0..50, default 10.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import checked_count
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, keep, recall, weights_of
from odt_sim.strategies.body import body_group
from odt_sim.strategies.own_part import OwnPart


class FedRep(OwnPart):
    """First the head, then the body, of which the body alone is averaged."""

    needs = frozenset({"body", "head", "train_head"})
    own = frozenset({"head"})

    def __init__(self, head_epochs: int = 10, unseen_epochs: int = 10) -> None:
        """Sets how long the head trains.

        Args:
            head_epochs: Its epochs in every round.
            unseen_epochs: Its epochs on a device that took no part in training.
        """
        super().__init__(unseen_epochs)
        self.head_epochs = checked_count("head_epochs", head_epochs, 1)

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Training the body alone as well, with its normalization layers."""
        return super().needed(model) | {f"train_{body_group(model)}"}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains the head under the body that came, then the body under this head."""
        shared = weights_of(broadcast)
        recall(device)
        device.restore(shared)
        losses = [device.train(self.head_epochs, group="head"), device.train(group=body_group(device.model))]
        trained = device.weights
        keep(device, trained, shared.layout)
        delta = trained.select(shared.layout) - shared
        return Update({"weights": delta}, len(device.train_examples), np.concatenate(losses))

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the body that came with the device's own head, which is trained first where there is none yet."""
        deployed = Strategy.deploy(self, device, broadcast)
        if "own" in device.state:
            return deployed
        device.train(self.unseen_epochs, group="head")
        return device.weights
