"""GPFL: a valve before the head produces generic features, guided by class embeddings, and personal features.

Paper: Zhang et al. 2023, GPFL: Simultaneously Learning Global and Personalized Feature Information for Personalized Federated
Learning, and the authors' program.
Rule: the valve `relu((gamma(c) + 1) h + beta(c))` turns an embedding h into features under a condition c; gamma and
beta are each a linear layer with ReLU and LayerNormalization. With the received category embeddings G, the generic
condition is the mean of G's rows, and the personal condition is their mean weighted by the device's number of examples
of each class. A device minimizes the cross-entropy of its head on the personal features; plus, on the generic features
f of an example with label y, the cross-entropy of the cosines of f and the category embeddings C, and
`magnitude |f - G_y|`; plus `decay / 2 |v|^2` with all weights v of the valve, including C. Its user gets the head on
the personal features.
Travels: body and norm, BatchNorm statistics included, the valve and the category embeddings.
Stays: the head and the personal condition. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: both conditions are computed from the received category embeddings; the program uses those of the device's
last round, and zeros in the first. `|f - G_y|` is averaged over the examples of a batch; the program uses the norm of
the whole batch. The decay is a term of the loss, which equals the program's weight decay under plain SGD. Layers are
initialized by Keras' defaults.
Unseen devices train the exported head on the shared parts, with only the cross-entropy, before deployment.
Hyper-parameters: `magnitude`, 0 or above, default 0.01 (lambda); `decay`, 0 or above, default 0.1 (mu); `unseen_epochs`,
0..50, default 10. The first two defaults are the program's for small networks; for ResNet-18 it uses 0.0001 and 0. A
Keras model is exported with a valve, see `odt_sim.export.add_valve`.
"""

from typing import Unpack

import numpy as np

from odt_sim._support.checks import checked
from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.model.manifest import Parameter
from odt_sim.model.valve import EMBEDDINGS, VALVE, in_valve, is_condition
from odt_sim.model.weights import Weights
from odt_sim.strategies.averaging import Averaging
from odt_sim.strategies.base import Tensors, Update, weights_of
from odt_sim.strategies.class_counts import class_counts
from odt_sim.strategies.own_part import OwnPart, train_own_part
from odt_sim.strategies.state import keep, receive


class GPFL(OwnPart):
    """FedAvg on everything except the head, with generic and personal features."""

    needs = frozenset({"category_embedding", "head"})
    own = frozenset({"head"})
    reads_examples = True

    def __init__(
        self,
        magnitude: float = 0.01,
        decay: float = 0.1,
        unseen_epochs: int = 10,
        **averaging: Unpack[Averaging],
    ) -> None:
        """Set the guidance by category embeddings.

        Args:
            magnitude: Factor of the distance of generic features from the class's embedding, at least 0.
            decay: Weight decay of the valve and the category embeddings, at least 0.
            unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains its head; 0 keeps the
                exported one.
            averaging: Settings of `Averaging`.
        """
        super().__init__(unseen_epochs, **averaging)
        self.magnitude = checked("magnitude", magnitude, 0)
        self.decay = checked("decay", decay, 0)

    def shared(self, parameter: Parameter) -> bool:
        """Return whether the parameter is averaged: outside the head, or in the valve except for the condition."""
        return super().shared(parameter) or (in_valve(parameter) and not is_condition(parameter))

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train on both kinds of features, and keep the head."""
        shared = _receive(device, broadcast)
        inputs = {
            "category_embedding": 1.0,
            "category_magnitude": self.magnitude,
            "category_decay": self.decay,
            "global_embeddings": shared[f"{VALVE}/{EMBEDDINGS}"],
        }
        losses = device.train(inputs=inputs)
        keep(device, device.weights, shared.layout)
        return Update({"weights": device.change_since(shared)}, len(device.train_examples), losses)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the shared parts with the device's condition and head; train a head first if the device has none."""
        shared = _receive(device, broadcast)
        if "own" not in device.state and self.unseen_epochs:
            train_own_part(device, shared, device.batches(TrainingPlan(self.unseen_epochs)))
        return device.weights


def _receive(device: Device, broadcast: Tensors) -> Weights:
    """Restore the received parts and the device's head, set its condition, and return the received parts."""
    shared, counts = weights_of(broadcast), class_counts(device)
    receive(device, broadcast)
    condition = (counts / counts.sum() @ shared[f"{VALVE}/{EMBEDDINGS}"]).astype(np.float32)
    device.restore(Weights.from_tensors(device.model.layout.select(is_condition), [condition]))
    return shared
