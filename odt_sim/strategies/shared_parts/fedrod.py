"""FedRoD: one body with two heads, a generic and a personal one.

Paper: Chen and Chao 2022, On Bridging Generic and Personalized Federated Learning for Image Classification, section 4.
Rule: FedAvg on w with the balanced softmax, the cross-entropy of `z_c + log n_c`, where n_c is the number of the device's
examples of class c; the personal head H then trains with the plain cross-entropy of the sum of both heads' logits, with
body and generic head frozen. A device's user gets w with H added to the generic head.
Travels: w, BatchNorm statistics included, as in FedAvg.
Stays: H, which starts at zero. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: H trains after w, on the body of the end of the round; the paper trains both in the same steps. Adding the
weights of two heads adds their logits if the head is one linear layer. A class without examples, whose logit would be
minus infinity, has probability 0.
Unseen devices train H for `unseen_epochs` before deployment.
Hyper-parameters: `unseen_epochs`, 0..50, default 10.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.classes import ABSENT, class_counts
from odt_sim.strategies.state import receive

PERSONAL = "personal"
"""The personal head in `device.state`, as the difference from the generic one."""


class FedRoD(Strategy):
    """FedAvg with a balanced loss, and a personal head in addition to the generic one.

    Attributes:
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a personal head before
            deployment.
    """

    needs = frozenset({"logit_shift", "head", "train_head"})
    reads_examples = True
    unseen_epochs: int = count(10)

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the generic model with the balanced loss, then the personal head."""
        shared, counts = weights_of(broadcast), class_counts(device)
        receive(device, broadcast)
        shift = np.where(counts > 0, np.log(np.maximum(counts, 1)), ABSENT)
        losses = device.train(inputs={"logit_shift": shift})
        trained = device.weights
        device.state[PERSONAL] = _train_personal(device, trained, None)
        return Update({"weights": trained.select(shared.layout) - shared}, len(device.train_examples), losses)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the global model with the sum of both heads."""
        shared = receive(device, broadcast)
        if PERSONAL not in device.state:
            device.state[PERSONAL] = _train_personal(device, shared, self.unseen_epochs)
        return _with_personal(device, shared)


def _with_personal(device: Device, generic: Weights) -> Weights:
    """Return a model with the device's personal head added, if it has one."""
    if PERSONAL not in device.state:
        return generic
    personal = weights_of(device.state, PERSONAL)
    return generic.replace(generic.select(personal.layout) + personal)


def _train_personal(device: Device, generic: Weights, epochs: int | None) -> Weights:
    """Train the sum of both heads, and return its difference from the generic one."""
    device.begin_again()
    device.restore(_with_personal(device, generic))
    device.train(epochs, group="head")
    head = generic.layout.select(lambda p: p.group == "head" and p.moves)
    return device.weights.select(head) - generic.select(head)
