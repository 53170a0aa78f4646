"""A user's research code that mypy checks with `strict`: a strategy, an aggregator, an observer, a partition, and a run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from odt_sim import Device, Fleet, Simulation, Strategy, TrainableModel, TrainingPlan, Weights, receive
from odt_sim.aggregators.base import Aggregator, with_numbers
from odt_sim.data import Dataset, FederatedData, digits, federate
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.tensors import array_of
from odt_sim.observers import Observer
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.summary import Summary
from odt_sim.strategies.base import ServerState, Tensors, Update, Updates, weights_of


class Halfway(Strategy):
    """Keeps the head on the device, and deploys a mix with a model that trained on."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def shared(self, parameter: Parameter) -> bool:
        return parameter.group != "head"

    def local(self, device: Device, broadcast: Tensors) -> Update:
        update = super().local(device, broadcast)
        device.state["largest_loss"] = np.array([update.losses.max()])
        return update

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        server = super().aggregate(state, updates)
        assert weights_of(server.broadcast).isfinite()
        return server

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        if "largest_loss" in device.state:  # not on devices that never trained
            device.records["largest_loss"] = float(array_of(device.state["largest_loss"])[0])
        shared: Weights = receive(device, broadcast)
        device.train(epochs=1)
        return self.share * device.parameters() + (1 - self.share) * shared


class Rounded(Aggregator):
    """Sends updates with three decimals."""

    def limit(self, tensors: Tensors) -> Tensors:
        return {name: with_numbers(tensor, np.round(array_of(tensor), 3)) for name, tensor in tensors.items()}


class StopAtLoss(Observer):
    """Ends a run at a training loss."""

    def __init__(self, loss: float) -> None:
        self.loss = loss
        self.losses: list[float] = []

    def on_round(self, record: RoundRecord) -> bool:
        loss = record.train_loss
        if loss is None:
            return False
        self.losses.append(loss)
        return loss <= self.loss


def in_turn(dataset: Dataset, devices: int | None, seed: int) -> Sequence[NDArray[np.int64]]:
    """Give each device every so many-th example."""
    count = 2 if devices is None else devices
    order = np.random.default_rng(seed).permutation(len(dataset.x))
    return [order[start::count] for start in range(count)]


def simulate(model: TrainableModel, folder: Path) -> tuple[Summary, StopAtLoss]:
    """Run two rounds."""
    observer = StopAtLoss(0.0)
    data: FederatedData = federate(digits(), in_turn, devices=4, seed=0)
    simulation = Simulation(
        model,
        data,
        Halfway(share=0.25),
        rounds=2,
        directory=folder,
        fleet=Fleet(cohort=2, unseen=1),
        plan=TrainingPlan(epochs=1),
        aggregator=Rounded(),
    )
    return simulation.run(observers=[observer]), observer


def confidence(model: TrainableModel) -> tuple[float, dict[str, float]]:
    """Train one device; return its mean probability of the predicted class, and its figures."""
    data = digits()
    device = Device(model, train=(data.x[:64], data.y[:64]), test=(data.x[64:96], data.y[64:96]), seed=0)
    losses = device.train(epochs=2, learning_rate=0.1)
    assert len(losses) == 8
    outputs = device.infer(data.x[64:96])
    assert isinstance(outputs, np.ndarray)  # columns for a model with several outputs
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return float((1 / shifted.sum(axis=1)).mean()), device.evaluate()
