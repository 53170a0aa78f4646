"""FedAvg with fine-tuning on each device.

Paper: Yu et al. 2020, Salvaging Federated Learning by Local Adaptation; Wang et al. 2019, Federated Evaluation of
On-device Personalization.
Rule: from the global weights, train all layers or only the head for `e` epochs locally. `e` in 0..max_epochs minimizes
the loss on the device's validation examples (ties: the fewest epochs, and all layers before the head).
Travels: all weights, BatchNorm statistics included, as in FedAvg.
Stays: nothing; optimizer slots start fresh every round and for each fine-tuning. Fine-tuning all layers updates the
statistics and uses Dropout. The model's `train_head` signature trains only the head, with the body in inference mode.
In a model without that signature, all layers train and the rest is written back after every step, so that the body
normalizes by the batch and uses Dropout.
Deviations: the number of epochs is chosen per device.
Unseen devices fine-tune like all others.
Hyper-parameters: `max_epochs`, 0..50, default 5; `layers`, `all`, `head`, or `chosen` by the same loss, default `all`. A
device without validation examples keeps the global weights.
"""

from collections.abc import Iterator
from itertools import chain, islice
from math import ceil
from typing import NamedTuple

from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.hyperparameters import choice, count
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors
from odt_sim.strategies.state import receive
from odt_sim.strategies.two_models.personal import train_own_part

LAYERS = {"all": ("all",), "head": ("head",), "chosen": ("all", "head")}
"""The parts fine-tuned for each value of `layers`, one after another, each from the global weights."""


class Tuned(NamedTuple):
    """A candidate produced by fine-tuning.

    Attributes:
        weights: All weights of the device.
        epochs: Number of epochs trained.
        layers: The trained layers: `all` or `head`.
        loss: Mean loss on the validation examples.
    """

    weights: Weights
    epochs: int
    layers: str
    loss: float


class FedAvgFineTune(Strategy):
    """FedAvg, with the global model fine-tuned on each device at deployment.

    Attributes:
        max_epochs: Maximum number of epochs that a device may choose.
        layers: Layers to fine-tune: `all`, `head`, or `chosen` by each device.
    """

    without_validation = "nothing is fine-tuned, and users get the global model"
    max_epochs: int = count(5, search="int(interval(1,10))")
    layers: str = choice("all", "head", "chosen")

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Return the required capabilities, with `head` if it is fine-tuned alone."""
        return super().needed(model) | ({"head"} if self.layers != "all" else set())

    def wanted(self, model: TrainableModel) -> frozenset[str]:
        """Return `needed`, with `train_head` if the head is fine-tuned alone: the body then computes as in inference."""
        return super().wanted(model) | ({"train_head"} if self.layers != "all" else set())

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Fine-tune and return the weights with the best validation loss."""
        shared = receive(device, broadcast)
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
        """Fine-tune from the global weights and yield a candidate after each epoch."""
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
