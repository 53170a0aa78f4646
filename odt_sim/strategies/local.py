"""Local training only: what a device reaches on its own, the baseline of every personalization.

Rule: each device that is in the cohort trains its own weights for the local epochs.
Travels: nothing. Stays: all weights and the optimizer's slots.
Hyper-parameters: none of its own; `train.epochs`, `train.learning_rate`.
"""

from odt_sim.device.device import Device
from odt_sim.model.manifest import Parameter
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import (
    ServerState,
    Strategy,
    Tensors,
    Update,
    Updates,
    keep,
    keep_optimizer,
    optimizer_of,
    recall,
)


class Local(Strategy):
    """Every device trains alone, and its optimizer goes on from round to round."""

    def shared(self, parameter: Parameter) -> bool:
        """Nothing travels."""
        return False

    def init(self, initial: Weights) -> ServerState:
        """Returns an empty state."""
        return ServerState({})

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains the device's own weights."""
        recall(device)
        slots = optimizer_of(device.state)
        if slots:
            device.restore_optimizer_state(slots)
        losses = device.train()
        trained = device.parameters()
        keep(device, trained, trained.layout.select(self.shared))
        keep_optimizer(device)
        return Update({}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Changes nothing."""
        return state

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the device's own weights; the exported ones on a device that never trained."""
        recall(device)
        return device.parameters()
