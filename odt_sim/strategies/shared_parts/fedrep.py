"""FedRep: shared representations under personal heads.

Paper: Collins et al. 2021, Exploiting Shared Representations for Personalized Federated Learning, algorithm 1.
Rule: the device trains the head for `head_epochs` with the body frozen, then the body for `train.epochs` with the head
frozen. The body is averaged with equal weights, and the head never travels.
Travels: body and norm; BatchNorm statistics are fixed while the head trains, and averaged.
Stays: the head. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: none.
Unseen devices train the exported head under the shared body before deployment, as in the paper.
Hyper-parameters: `head_epochs`, 1..50, default 10; `unseen_epochs`, 0..50, default 10.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Tensors, Update, weights_of
from odt_sim.strategies.state import keep, recall, receive
from odt_sim.strategies.two_models.personal import OwnPart, body_group


class FedRep(OwnPart):
    """Personal heads under a shared body: train the head, then the body, and average only the body.

    Attributes:
        head_epochs: Epochs of the head in every round, at least 1.
        unseen_epochs: Epochs of the head on a device that never trained, unseen or seen, before deployment.
    """

    needs = frozenset({"body", "head", "train_head"})
    own = frozenset({"head"})
    weighting = "uniform"
    head_epochs: int = count(10, 1, search="int(interval(1,10))")

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Return the required capabilities, with training of the body and its normalization layers alone."""
        return super().needed(model) | {f"train_{body_group(model)}"}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the head under the received body, then the body under this head."""
        shared = weights_of(broadcast)
        recall(device)
        device.restore(shared)
        losses = [device.train(self.head_epochs, group="head"), device.train(group=body_group(device.model))]
        keep(device, device.weights, shared.layout)
        return Update({"weights": device.change_since(shared)}, len(device.train_examples), np.concatenate(losses))

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the received body with the device's head, trained first if the device has none."""
        deployed = receive(device, broadcast)
        if "own" in device.state:
            return deployed
        device.train(self.unseen_epochs, group="head")
        return device.weights
