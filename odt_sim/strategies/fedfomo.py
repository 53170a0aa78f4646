"""FedFomo: each device takes from the others' models what lowers its own validation loss.

Zhang et al. 2021, Personalized Federated Learning with First Order Model Optimization, section 3.
Rule: on the device `v <- v + sum_j o_j (w_j - v)` with `o_j = max(0, (L(v) - L(w_j)) / |w_j - v|)` divided by their sum, L
being the loss on the device's own validation examples; then v trains for the local epochs, and the others receive it as w_i.
The paper's server sends a few models, sampled by how useful they were; here it sends those of all other devices.
Travels: all other devices' models down, one up, BatchNorm statistics included, which the distances leave out. Stays: v, which
begins as exported. The optimizer's slots start fresh every round.
Unseen devices take from the models in the same way, and train for `unseen_epochs`, before they are deployed to.
Hyper-parameters: `unseen_epochs`, 0..50, default 5; a device without validation examples takes nothing.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import (
    ServerState,
    Strategy,
    Tensors,
    Update,
    Updates,
    recall,
    trained_by_gradients,
    weights_of,
)
from odt_sim.strategies.own_model import keep_whole
from odt_sim.strategies.settings import checked_count


class FedFomo(Strategy):
    """Every device has a model of its own, and weighs those of all others by what they are worth to it."""

    keeps_updates = True

    def __init__(self, unseen_epochs: int = 5) -> None:
        """Sets how a device begins that took no part in training.

        Args:
            unseen_epochs: The epochs for which such a device trains what it took from the others.
        """
        self.unseen_epochs = checked_count("unseen_epochs", unseen_epochs)

    def init(self, initial: Weights) -> ServerState:
        """Returns an empty state: nobody has trained a model yet."""
        return ServerState({})

    def message(self, broadcast: Tensors, device: int) -> Tensors:
        """Returns all models but the device's own."""
        return {name: model for name, model in broadcast.items() if name != _name(device)}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Takes from the others' models, trains, and sends the outcome itself."""
        recall(device)
        _take(device, broadcast)
        losses = device.train()
        trained = device.parameters()
        keep_whole(device, trained)
        whole = trained.select(trained.layout.select(lambda p: p.moves))
        return Update({"weights": whole}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Puts the devices' models in the place of their former ones."""
        sent = {_name(id): weights_of(update.tensors) for id, update in updates.each.items()}
        return ServerState({**state.broadcast, **sent})

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the device's own model."""
        recall(device)
        if "own" not in device.state:
            _take(device, broadcast)
            device.train(self.unseen_epochs)
        return device.parameters()


def _take(device: Device, models: Tensors) -> None:
    """Moves the device's weights towards the models that do better on its validation examples."""
    if not (models and len(device.validation_examples)):
        return
    own = device.parameters()
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
    """Returns how much a model lowers the loss for each unit of the way there; 0 where there is none."""
    distance = float(np.linalg.norm(apart.select(trained_by_gradients(apart.layout)).vector))
    return gain / distance if distance > 0 else 0.0


def _validation_loss(device: Device, weights: Weights) -> float:
    device.restore(weights)
    return device.loss("validation")


def _name(device: int) -> str:
    return f"model.{device}"
