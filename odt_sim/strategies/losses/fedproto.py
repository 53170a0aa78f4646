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

from dataclasses import dataclass
from typing import Any

import numpy as np

from odt_sim.data.store.columns import Array
from odt_sim.device.device import Device
from odt_sim.hyperparameters import count, number
from odt_sim.metrics.losses import log_softmax
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import AVERAGING, ServerState, Strategy, Tensors, Update, Updates
from odt_sim.strategies.classes import class_counts, means_by_class
from odt_sim.strategies.state import recall
from odt_sim.strategies.two_models.personal import keep_whole

PROTOTYPES, COUNTS = "prototypes", "counts"
"""Names of the prototypes, `[classes, features]` float32, and the numbers of examples, `[classes]` float32."""


class FedProto(Strategy):
    """Personal models with shared class prototypes.

    Attributes:
        strength: Factor of the distance from a class's prototype, at least 0.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a model before deployment.
    """

    needs = frozenset({"prototypes", "embed"})
    asynchronous = False
    reads_examples = True
    unweighted = frozenset({PROTOTYPES, COUNTS})
    unused = AVERAGING
    strength: float = number(1.0, search="tag(log,interval(0.01,10))")
    unseen_epochs: int = count(10)

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


def own_prototypes(device: Device) -> Tensors:
    """Return a device's message: the sum of embeddings and the number of examples of each class."""
    counts = class_counts(device)
    means = means_by_class(device, np.asarray(device.embedded("train").x))
    return {PROTOTYPES: (means * counts[:, np.newaxis]).astype(np.float32), COUNTS: counts.astype(np.float32)}


def mean_prototypes(before: Tensors, sent: Tensors) -> Tensors:
    """Return the prototypes after a round, weighted by examples; a class that no device has keeps its prototype.

    Args:
        before: The prototypes before the round, if any.
        sent: Mean of the devices' messages, with equal weights.
    """
    sums, counts = (array_of(sent[name]) for name in (PROTOTYPES, COUNTS))
    held = counts[:, np.newaxis] > 0  # hostile devices may make a count negative
    new = np.divide(sums, counts[:, np.newaxis], out=np.zeros_like(sums), where=held)
    if PROTOTYPES in before:
        kept, seen = (array_of(before[name]) for name in (PROTOTYPES, COUNTS))
        new = np.where(held, new, kept)
        counts = np.where(counts > 0, counts, seen)
    return {PROTOTYPES: np.asarray(new, np.float32), COUNTS: np.asarray(counts, np.float32)}


def prototype_inputs(broadcast: Tensors, strength: float) -> dict[str, Any]:
    """Return the inputs of the loss term `prototypes`; none before the first prototypes.

    Args:
        broadcast: The message that the device received.
        strength: Factor of the squared distances.
    """
    if PROTOTYPES not in broadcast:
        return {}
    known = (array_of(broadcast[COUNTS]) > 0).astype(np.float32)
    return {"prototypes": strength, "class_prototypes": broadcast[PROTOTYPES], "known_prototypes": known}


@dataclass(frozen=True, eq=False)
class NearestPrototype:
    """Predictions from the squared distances between embeddings and prototypes, for `Device.correction`.

    Attributes:
        prototypes: `[classes, features]`.
        known: `[classes]`, whether a class has a prototype; classes without one have probability 0.
        from_logits: Whether outputs are logits rather than probabilities.
    """

    prototypes: Array
    known: Array
    from_logits: bool

    def __call__(self, embeddings: Array, outputs: Array) -> Array:
        """Return the softmax of negative squared distances, `[rows, classes]`; logits if the model outputs logits."""
        rows, prototypes = embeddings.astype(np.float64), self.prototypes.astype(np.float64)
        squares = (rows**2).sum(axis=1)[:, np.newaxis] + (prototypes**2).sum(axis=1) - 2 * rows @ prototypes.T
        answers = np.exp(log_softmax(np.where(self.known, -squares, -np.inf)))
        return np.asarray(np.log(np.maximum(answers, np.finfo(np.float64).tiny)) if self.from_logits else answers)
