"""FedFomo: each device combines the models that lower its own validation loss.

Paper: Zhang et al. 2021, Personalized Federated Learning with First Order Model Optimization, section 3.
Rule: on the device `v <- v + sum_j o_j (w_j - v)` with `o_j = max(0, (L(v) - L(w_j)) / |w_j - v|)` divided by their sum,
where L is the loss on the device's validation examples; then v trains for the local epochs and is sent to the others as
w_i. A device receives the models of all others, or of at most `models` others in rotation.
Travels: the other models down, the device's own up, BatchNorm statistics included; distances ignore the statistics.
Stays: v, which starts as exported. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Memory: the server and every worker hold the models of all devices: 4 GB for 1,000 devices with 1 million parameters.
`models` limits the download and the number of models evaluated, not this memory.
Deviations: with `models`, the server sends models in rotation; the paper's server sends those that were most useful to
the device before, and some random ones.
Unseen devices combine the models in the same way, and train for `unseen_epochs` before deployment.
Hyper-parameters: `models`, 1 or more, default None for all; `unseen_epochs`, 0..50, default 10. A device without
validation examples combines nothing.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import count
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import AVERAGING, ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.state import recall, trained_by_gradients
from odt_sim.strategies.two_models.personal import keep_whole

TURN = "turn"
"""Name of the number of rounds so far in the broadcast."""


class FedFomo(Strategy):
    """Personal models, each moved towards the other models in proportion to their value to the device.

    Attributes:
        models: Maximum number of other models that a device receives in a round; None for all.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains the combination.
    """

    keeps_updates = True
    asynchronous = False
    without_validation = "no device uses another device's model"
    unused = AVERAGING
    models: int | None = count(None, 1, optional=True, search="int(interval(2,20))")
    unseen_epochs: int = count(10)

    def init(self, initial: Weights) -> ServerState:
        """Return no model, since no device has trained yet."""
        return ServerState({TURN: np.zeros(1, np.int64)})

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return the models of all other devices, or the next ones in rotation."""
        broadcast = state.broadcast
        others = sorted(broadcast.keys() - {TURN, _name(device)})
        if self.models is not None and len(others) > self.models:
            first = device + self.models * int(array_of(broadcast[TURN])[0])
            others = [others[(first + i) % len(others)] for i in range(self.models)]
        return {name: broadcast[name] for name in others}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Combine the other models, train, and send the result."""
        recall(device)
        _take(device, broadcast)
        losses = device.train()
        trained = device.weights
        keep_whole(device, trained)
        whole = trained.select(trained.layout.select(lambda p: p.moves))
        return Update({"weights": whole}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Replace the models of the devices that contributed."""
        sent = {_name(id): weights_of(update.tensors) for id, update in updates.each.items()}
        return ServerState({**state.broadcast, **sent, TURN: array_of(state.broadcast[TURN]) + 1})

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's personal model."""
        recall(device)
        if "own" not in device.state:
            _take(device, broadcast)
            device.train(self.unseen_epochs)
        return device.weights


def _take(device: Device, models: Tensors) -> None:
    """Move the device's weights towards the models with a lower loss on its validation examples."""
    if not (models and len(device.validation_examples)):
        return
    own = device.weights
    before = _validation_loss(device, own)
    others = (own.replace(weights_of(models, name)) for name in sorted(models))
    better = [(gain, other - own) for other in others if (gain := before - _validation_loss(device, other)) > 0]
    worth = np.array([_worth(gain, apart) for gain, apart in better])
    device.restore(own)
    if worth.sum() > 0:
        shares = worth / worth.sum()
        moved = sum(share * apart.vector.astype(np.float64) for share, (_, apart) in zip(shares, better, strict=True))
        device.restore(Weights(own.layout, (own.vector + moved).astype(np.float32)))


def _worth(gain: float, apart: Weights) -> float:
    """Return the loss decrease per unit of distance; 0 for an equal model."""
    distance = float(np.linalg.norm(apart.select(trained_by_gradients(apart.layout)).vector))
    return gain / distance if distance > 0 else 0.0


def _validation_loss(device: Device, weights: Weights) -> float:
    device.restore(weights)
    return device.loss("validation")


def _name(device: int) -> str:
    return f"model.{device}"
