"""Federated averaging, then fine-tuning on each device.

Yu et al. 2020, Salvaging Federated Learning by Local Adaptation; Wang et al. 2019, Federated Evaluation of On-device
Personalization.
Rule: from the global weights, train `e` epochs locally, all layers or the head alone, `e` in 0..max_epochs with the smallest
loss on the device's own validation examples (the fewest epochs among equals; all layers before the head).
Travels: all weights, BatchNorm statistics included, as in FedAvg. Stays: nothing; the optimizer's slots start fresh every
round and for each fine-tuning. Fine-tuning all layers moves the statistics and draws for Dropout. The head alone is trained
by the model's own steps for it, under which the body stands as in inference; where the model has none, the rest is written
back after every step of all layers, in which the body normalizes by the batch and draws for Dropout.
Unseen devices fine-tune as all do.
Hyper-parameters: `max_epochs`, 0..50, default 5; `layers`, `all`, `head`, or `chosen` of the two by the same loss, default
`all`. A device without validation examples keeps the global weights.
"""

from collections.abc import Iterator
from itertools import chain, islice
from math import ceil
from typing import NamedTuple

from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import ConfigurationError
from odt_sim.hyperparameters import checked_count
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors
from odt_sim.strategies.own_part import train_own_part

LAYERS = {"all": ("all",), "head": ("head",), "chosen": ("all", "head")}
"""What is fine-tuned under each value of `layers`, one after the other and each from the global weights."""


class Tuned(NamedTuple):
    """What fine-tuning has come to.

    Attributes:
        weights: All weights of the device.
        epochs: How long it trained.
        layers: What of it: `all` or `head`.
        loss: The mean loss on its validation examples.
    """

    weights: Weights
    epochs: int
    layers: str
    loss: float


class FedAvgFineTune(Strategy):
    """FedAvg whose users get the global model fine-tuned on their device."""

    def __init__(self, max_epochs: int = 5, layers: str = "all") -> None:
        """Sets the longest fine-tuning.

        Args:
            max_epochs: The most epochs that a device may choose.
            layers: What is fine-tuned: `all`, `head`, or `chosen` by each device.
        """
        self.max_epochs = checked_count("max_epochs", max_epochs)
        if layers not in LAYERS:
            raise ConfigurationError(f"strategy.layers: expected one of {', '.join(LAYERS)}, found {layers!r}")
        self.layers = layers

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """A head, where it is fine-tuned alone."""
        return super().needed(model) | ({"head"} if self.layers != "all" else set())

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Fine-tunes, and returns the weights that validate best."""
        shared = super().deploy(device, broadcast)
        if not len(device.validation_examples):
            device.records["fine_tune_epochs"] = 0
            return shared
        untouched = Tuned(shared, 0, "all", device.loss("validation"))
        tuned = chain.from_iterable(self._tuned(device, shared, layers) for layers in LAYERS[self.layers])
        best = min(chain([untouched], tuned), key=lambda found: found.loss)
        device.records["fine_tune_epochs"] = best.epochs
        if self.layers == "chosen":
            device.records["fine_tune_head"] = int(best.layers == "head")
        return best.weights

    def _tuned(self, device: Device, shared: Weights, layers: str) -> Iterator[Tuned]:
        """Fine-tunes from the global weights; yields what each epoch leads to."""
        device.begin_again()
        device.restore(shared)
        rest = shared.select(shared.layout.select(lambda p: p.group != "head"))
        steps = device.batches(TrainingPlan(self.max_epochs))
        for epoch in range(1, self.max_epochs + 1):
            if layers == "all":
                device.train(epochs=1)
            elif "train_head" in device.model.capabilities:
                device.train(epochs=1, group="head")
            else:
                train_own_part(device, rest, islice(steps, ceil(len(device.train_examples) / device.model.batch_size)))
            yield Tuned(device.weights, epoch, layers, device.loss("validation"))
