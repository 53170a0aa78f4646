"""FedFomo: each device takes from the others' models what lowers its own validation loss.

Zhang et al. 2021, Personalized Federated Learning with First Order Model Optimization, section 3.
Rule: on the device `v <- v + sum_j o_j (w_j - v)` with `o_j = max(0, (L(v) - L(w_j)) / |w_j - v|)` divided by their sum, L
being the loss on the device's own validation examples; then v trains for the local epochs, and the others receive it as w_i.
A device receives the models of all others, or of at most `models` of them; then they come in turn, another few in every round
(the paper's server sends those that were most useful to the device before, and some at random).
Travels: others' models down, one up, BatchNorm statistics included, which the distances leave out. Stays: v, which begins as
exported. The optimizer's slots start fresh every round, and Dropout draws as in FedAvg. The server and every worker hold a
model for each device: 4 GB for 1,000 devices of 1 million parameters. `models` limits what a device receives, and how many
models it evaluates, not this.
Unseen devices take from the models in the same way, and train for `unseen_epochs`, before they are deployed to.
Hyper-parameters: `models`, 1 or more, default None for all; `unseen_epochs`, 0..50, default 10; a device without validation
examples takes nothing.
"""

import numpy as np

from odt_sim.device.device import Device
from odt_sim.hyperparameters import checked_count
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import (
    ServerState,
    Strategy,
    Tensors,
    Update,
    Updates,
    array_of,
    recall,
    trained_by_gradients,
    weights_of,
)
from odt_sim.strategies.own_model import keep_whole

TURN = "turn"
"""The number of rounds so far, in the broadcast beside the models."""


class FedFomo(Strategy):
    """Every device has a model of its own, and weighs those of all others by what they are worth to it."""

    keeps_updates = True

    def __init__(self, models: int | None = None, unseen_epochs: int = 10) -> None:
        """Sets how many models a device receives, and how one begins that took no part in training.

        Args:
            models: The most of others' models that a device receives in a round; None for all.
            unseen_epochs: The epochs for which such a device trains what it took from the others.
        """
        self.models = None if models is None else checked_count("models", models, 1)
        self.unseen_epochs = checked_count("unseen_epochs", unseen_epochs)

    def init(self, initial: Weights) -> ServerState:
        """Returns no model: nobody has trained one yet."""
        return ServerState({TURN: np.zeros(1, np.int64)})

    def message(self, broadcast: Tensors, device: int) -> Tensors:
        """Returns models of other devices: all, or those whose turn it is."""
        others = sorted(broadcast.keys() - {TURN, _name(device)})
        if self.models is not None and len(others) > self.models:
            first = device + self.models * int(array_of(broadcast[TURN])[0])
            others = [others[(first + i) % len(others)] for i in range(self.models)]
        return {name: broadcast[name] for name in others}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Takes from the others' models, trains, and sends the outcome itself."""
        recall(device)
        _take(device, broadcast)
        losses = device.train()
        trained = device.weights
        keep_whole(device, trained)
        whole = trained.select(trained.layout.select(lambda p: p.moves))
        return Update({"weights": whole}, len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Puts the devices' models in the place of their former ones."""
        sent = {_name(id): weights_of(update.tensors) for id, update in updates.each.items()}
        return ServerState({**state.broadcast, **sent, TURN: array_of(state.broadcast[TURN]) + 1})

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the device's own model."""
        recall(device)
        if "own" not in device.state:
            _take(device, broadcast)
            device.train(self.unseen_epochs)
        return device.weights


def _take(device: Device, models: Tensors) -> None:
    """Moves the device's weights towards the models that do better on its validation examples."""
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
    """Returns how much a model lowers the loss for each unit of the way there; 0 where there is none."""
    distance = float(np.linalg.norm(apart.select(trained_by_gradients(apart.layout)).vector))
    return gain / distance if distance > 0 else 0.0


def _validation_loss(device: Device, weights: Weights) -> float:
    device.restore(weights)
    return device.loss("validation")


def _name(device: int) -> str:
    return f"model.{device}"
