"""Federated training of the head on a fixed body, as transfer learning on devices.

Paper: the recipe of TensorFlow Lite's on-device training, as FedAvg (McMahan et al. 2017) on the last layers of a pretrained
network; Nguyen et al. 2022, Where to Begin? On the Impact of Pre-Training and Initialization in Federated Learning.
Rule: FedAvg on the head; the body stays as exported, BatchNorm statistics included. If the file has the signature
`embed`, a device computes the embedding of each example once.
Travels: the head.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: none.
Unseen devices get the global head.
Hyper-parameters: none of its own.
"""

from odt_sim.device.device import Device
from odt_sim.model.contract.manifest import Parameter
from odt_sim.strategies.base import Strategy, Tensors, Update, weights_of


class HeadOnly(Strategy):
    """FedAvg on the head."""

    needs = frozenset({"head", "train_head"})

    def shared(self, parameter: Parameter) -> bool:
        """Return whether the parameter belongs to the head."""
        return parameter.group == "head"

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train the head."""
        shared = weights_of(broadcast)
        device.restore(shared)
        losses = device.train(group="head")
        return Update({"weights": device.change_since(shared)}, len(device.train_examples), losses)
