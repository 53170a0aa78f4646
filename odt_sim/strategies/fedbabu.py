"""A body that is trained under a head that nobody trains, and fine-tuning at the end.

Oh et al. 2022, FedBABU: Toward Enhanced Representation for Federated Image Classification.
Rule: on the device the body trains under the head as it was exported, and is averaged as in FedAvg; a device's user gets this
model after `fine_tune_epochs` on the device's own examples, of all layers, as the paper reports, or of the head alone.
Travels: body and norm, BatchNorm statistics included. Stays: nothing; all devices, unseen ones too, have the exported head
and fine-tune from the same model. The optimizer's slots start fresh every round, and for fine-tuning; Dropout
draws as in FedAvg.
Hyper-parameters: `fine_tune_epochs`, 0..50, default 5 as in the paper; `fine_tune`, `all` or `head`, default `all`.
"""

from odt_sim.device.device import Device
from odt_sim.errors import ConfigurationError
from odt_sim.hyperparameters import checked_count
from odt_sim.model.manifest import Parameter
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.body import body_group


class FedBABU(Strategy):
    """FedAvg on the body, whose head is the exported one until a user's device fine-tunes it."""

    needs = frozenset({"body", "head"})

    def __init__(self, fine_tune_epochs: int = 5, fine_tune: str = "all") -> None:
        """Sets the fine-tuning.

        Args:
            fine_tune_epochs: How long.
            fine_tune: What: `all` or `head`.
        """
        self.fine_tune_epochs = checked_count("fine_tune_epochs", fine_tune_epochs)
        if fine_tune not in ("all", "head"):
            raise ConfigurationError(f"strategy.fine_tune: expected all or head, found {fine_tune!r}")
        self.fine_tune = fine_tune

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Training the body alone, and the head where that is fine-tuned."""
        head = {"train_head"} if self.fine_tune == "head" else set()
        return super().needed(model) | {f"train_{body_group(model)}"} | head

    def shared(self, parameter: Parameter) -> bool:
        """All but the head travels."""
        return parameter.group != "head"

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Trains the body under the exported head."""
        shared = weights_of(broadcast)
        device.restore(shared)
        losses = device.train(group=body_group(device.model))
        trained = device.weights.select(shared.layout)
        return Update({"weights": trained - shared}, len(device.train_examples), losses)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Fine-tunes all layers or the head."""
        device.restore(weights_of(broadcast))
        device.train(self.fine_tune_epochs, group="head" if self.fine_tune == "head" else None)
        return device.weights
