"""Local training only: the baseline for every personalization.

Paper: none; every device trains alone.
Rule: in every round, every device trains its own weights for the local epochs, regardless of the cohort. Devices that
are unseen under other strategies train, too.
Travels: nothing.
Stays: all weights, BatchNorm statistics included, and the optimizer slots; Dropout draws as in FedAvg.
Deviations: none.
Hyper-parameters: none of its own; `train.epochs`, `train.learning_rate`.
"""

from odt_sim.device.device import Device
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import AVERAGING, ServerState, Strategy, Tensors, Update, Updates
from odt_sim.strategies.state import NOTHING, keep, keep_optimizer, recall, recall_optimizer


class Local(Strategy):
    """Every device trains alone, with optimizer slots that persist from round to round."""

    alone = True
    asynchronous = False
    unused = AVERAGING

    def shared(self, parameter: Parameter) -> bool:
        """Return False: nothing travels."""
        return False

    def init(self, initial: Weights) -> ServerState:
        """Return an empty state."""
        return ServerState({})

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the device's own weights."""
        recall(device)
        recall_optimizer(device)
        losses = device.train()
        trained = device.weights
        keep(device, trained, NOTHING)
        keep_optimizer(device)
        return Update({}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Return the state unchanged."""
        return state

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's own weights."""
        recall(device)
        return device.weights
