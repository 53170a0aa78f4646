"""Local training only: what a device reaches on its own, the baseline of every personalization.

Rule: in every round every device trains its own weights for the local epochs, whatever the cohort, and those that are
unseen by other strategies too: a user who trains alone waits for nobody.
Travels: nothing. Stays: all weights, BatchNorm statistics included, and the optimizer's slots; Dropout draws as in FedAvg.
Hyper-parameters: none of its own; `train.epochs`, `train.learning_rate`.
"""

from odt_sim.device.device import Device
from odt_sim.model.manifest import Parameter
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import (
    NOTHING,
    ServerState,
    Strategy,
    Tensors,
    Update,
    Updates,
    keep,
    keep_optimizer,
    recall,
    recall_optimizer,
)


class Local(Strategy):
    """Every device trains alone, and its optimizer goes on from round to round."""

    alone = True

    def shared(self, parameter: Parameter) -> bool:
        """Nothing travels."""
        return False

    def init(self, initial: Weights) -> ServerState:
        """Returns an empty state."""
        return ServerState({})

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains the device's own weights."""
        recall(device)
        recall_optimizer(device)
        losses = device.train()
        trained = device.weights
        keep(device, trained, NOTHING)
        keep_optimizer(device)
        return Update({}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Changes nothing."""
        return state

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the device's own weights."""
        recall(device)
        return device.weights
