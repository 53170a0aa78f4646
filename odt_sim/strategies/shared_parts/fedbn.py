"""FedBN: normalization layers stay local.

Paper: Li et al. 2021, FedBN: Federated Learning on Non-IID Features via Local Batch Normalization.
Rule: all layers train together on the device; all except the normalization layers are averaged as in FedAvg.
Travels: body and head.
Stays: scale and shift of every normalization layer, and BatchNorm statistics. Optimizer slots start fresh every round,
and Dropout draws as in FedAvg.
Deviations: a head that contains normalization layers is refused, since a parameter has one group, here `head`.
Unseen devices train the exported normalization layers, statistics included, while the rest is fixed. The authors
suggest the mean of the other devices' normalization layers, which would have to travel, or statistics estimated on the
device.
Hyper-parameters: `unseen_epochs`, 0..50, default 10: statistics move by `1 - momentum` per step, so a few epochs of few
batches leave them near their initial values.
"""

from odt_sim.errors import StrategyError
from odt_sim.model.trainable import TrainableModel
from odt_sim.strategies.two_models.personal import OwnPart

NORMALIZING = ("gamma", "beta", "moving_mean", "moving_variance", "running_mean", "running_var")


class FedBN(OwnPart):
    """FedAvg on everything except the normalization layers."""

    needs = frozenset({"norm"})
    own = frozenset({"norm"})

    def check(self, model: TrainableModel) -> None:
        """Check the model's capabilities, and that all normalization layers are outside the head.

        Raises:
            StrategyError: A capability is missing, or a normalization layer is in the head, so that it would travel.
        """
        super().check(model)
        for parameter in model.parameters:
            layer, _, name = parameter.name.rpartition("/")
            if parameter.group == "head" and parameter.moves and name in NORMALIZING:
                raise StrategyError(
                    f"strategy {self.name}: the head of the model {model.name} contains the normalization layer {layer}, "
                    "which would travel; run this strategy without model.head, or leave the layer out of it"
                )
