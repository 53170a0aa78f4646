"""FedBABU: a body trained under a fixed head, then fine-tuned at deployment.

Paper: Oh et al. 2022, FedBABU: Toward Enhanced Representation for Federated Image Classification.
Rule: the device trains the body under the exported head; the body is averaged as in FedAvg. A device's user gets this
model after `fine_tune_epochs` on the device's own examples; they train all layers, as in the paper, or only the head.
Travels: body and norm, BatchNorm statistics included.
Stays: nothing; all devices have the exported head. Optimizer slots start fresh every round and for fine-tuning; Dropout
draws as in FedAvg.
Deviations: none.
Unseen devices fine-tune from the same model as all others.
Hyper-parameters: `fine_tune_epochs`, 0..50, default 5 as in the paper; `fine_tune`, `all` or `head`, default `all`.
"""

from odt_sim.device.device import Device
from odt_sim.hyperparameters import choice, count
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of
from odt_sim.strategies.two_models.personal import body_group


class FedBABU(Strategy):
    """FedAvg on the body, with the exported head until deployment.

    Attributes:
        fine_tune_epochs: Number of epochs of fine-tuning.
        fine_tune: Layers to fine-tune: `all` or `head`.
    """

    needs = frozenset({"body", "head"})
    fine_tune_epochs: int = count(5, search="int(interval(1,10))")
    fine_tune: str = choice("all", "head")

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Return the required capabilities, with `train_head` if only the head is fine-tuned."""
        head = {"train_head"} if self.fine_tune == "head" else set()
        return super().needed(model) | {f"train_{body_group(model)}"} | head

    def shared(self, parameter: Parameter) -> bool:
        """Return whether the parameter is outside the head."""
        return parameter.group != "head"

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the body under the exported head."""
        shared = weights_of(broadcast)
        device.restore(shared)
        losses = device.train(group=body_group(device.model))
        return Update({"weights": device.change_since(shared)}, len(device.train_examples), losses)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Fine-tune all layers or the head."""
        device.restore(weights_of(broadcast))
        device.train(self.fine_tune_epochs, group="head" if self.fine_tune == "head" else None)
        return device.weights
