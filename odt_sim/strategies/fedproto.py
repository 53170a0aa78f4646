"""FedProto: devices share mean embeddings of classes instead of weights.

Paper: Tan et al. 2022, FedProto: Federated Prototype Learning across Heterogeneous Clients, algorithm 1.
Rule: each device trains its own model with `strength |h - p_y|^2` added to the loss of an example with embedding h and label
y, and sends the mean embedding of each of its classes. The server's p_c is their mean over devices, weighted by their
examples of class c. A device's user gets the class of the nearest prototype.
Travels: a prototype and the number of examples for each class.
Stays: the model, with its BatchNorm statistics. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: the term is the squared distance of each example's embedding; the paper uses the distance of the mean
embedding of each class. Probabilities, which the paper does not define, are the softmax of the negative squared
distances. In the first round, there are no prototypes and devices train without the term.
Unseen devices train a model from the exported weights with the prototypes for `unseen_epochs` before deployment.
Hyper-parameters: `strength`, 0 or above, default 1 (lambda); `unseen_epochs`, 0..50, default 10.
"""

from odt_sim._support.checks import checked, checked_count
from odt_sim.device.device import Device
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates
from odt_sim.strategies.own_model import keep_whole
from odt_sim.strategies.prototypes import (
    COUNTS,
    PROTOTYPES,
    NearestPrototype,
    mean_prototypes,
    own_prototypes,
    prototype_inputs,
)
from odt_sim.strategies.state import recall


class FedProto(Strategy):
    """Personal models with shared class prototypes."""

    needs = frozenset({"prototypes", "embed"})
    asynchronous = False
    reads_examples = True
    unweighted = frozenset({PROTOTYPES, COUNTS})

    def __init__(self, strength: float = 1.0, unseen_epochs: int = 10) -> None:
        """Set the pull towards the prototypes.

        Args:
            strength: Factor of the distance from a class's prototype, at least 0.
            unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a model before
                deployment.
        """
        self.strength = checked("strength", strength, 0)
        self.unseen_epochs = checked_count("unseen_epochs", unseen_epochs)

    def init(self, initial: Weights) -> ServerState:
        """Return an empty state, since no device has trained yet."""
        return ServerState({})

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the device's model towards the prototypes, and send its sums of embeddings and numbers of examples."""
        recall(device)
        losses = device.train(inputs=prototype_inputs(broadcast, self.strength))
        keep_whole(device, device.weights)
        return Update(own_prototypes(device), len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Replace the prototypes of classes that occur on the round's devices."""
        return ServerState(mean_prototypes(state.broadcast, updates.mean))

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's own model, and make it predict the class of the nearest prototype."""
        recall(device)
        if "own" not in device.state:
            device.train(self.unseen_epochs, inputs=prototype_inputs(broadcast, self.strength))
        if PROTOTYPES in broadcast:
            prototypes, counts = (array_of(broadcast[name]) for name in (PROTOTYPES, COUNTS))
            device.correction = NearestPrototype(prototypes, counts > 0, device.model.from_logits)
        return device.weights
