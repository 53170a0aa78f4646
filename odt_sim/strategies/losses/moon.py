"""MOON: a contrastive loss that pulls embeddings to the global model's and away from the device's last model's.

Paper: Li et al. 2021, Model-Contrastive Federated Learning, section 3.
Rule: FedAvg, with `-mu log(e^(s_g/T) / (e^(s_g/T) + e^(s_p/T)))` added to the local loss of each example, where s_g and
s_p are the cosines between its embedding and those of the received model and of the device's model after its last round.
Travels: all weights, BatchNorm statistics included, as in FedAvg.
Stays: the device's last model; in its first round it is the received one. Optimizer slots start fresh every round, and
Dropout draws as in FedAvg.
Deviations: an embedding is the input of the model's head; the paper adds a projection head to the model.
Unseen devices get the global weights.
Hyper-parameters: `mu`, 0 or above, default 1; `temperature`, above 0, default 0.5.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.hyperparameters import number
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of


class Moon(Strategy):
    """FedAvg with a contrast between the received model and the device's last one.

    Attributes:
        mu: Factor of the contrastive loss, at least 0; 0 is FedAvg.
        temperature: Temperature of the cosines, above 0.
    """

    needs = frozenset({"contrastive", "embed"})
    reads_examples = True
    mu: float = number(1.0, search="tag(log,interval(0.1,10))")
    temperature: float = number(0.5, above=True, search="interval(0.1,1)")

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train with the contrastive loss, and keep the result."""
        shared = weights_of(broadcast)
        last = device.state.get("last", shared)
        away = _embeddings(device, weights_of({"last": last}, "last"))
        towards = _embeddings(device, shared)
        inputs = {
            "contrastive": self.mu,
            "contrastive_temperature": self.temperature,
            "global_embedding": towards,
            "previous_embedding": away,
        }
        losses = device.train(inputs=inputs)
        trained = device.weights.select(shared.layout)
        device.state["last"] = trained
        return Update({"weights": trained - shared}, len(device.train_examples), losses)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the global weights."""
        device.restore(weights_of(broadcast))
        return device.weights


def _embeddings(device: Device, weights: Weights) -> NDArray[np.float32]:
    """Restore weights on the device, and return their embeddings of the training examples, `[examples, features]`."""
    device.restore(weights)
    return np.array(device.embedded("train").x)
