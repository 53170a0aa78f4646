"""Local normalization.

Li et al. 2021, FedBN: Federated Learning on Non-IID Features via Local Batch Normalization.
Rule: all layers train together on the device; all but the normalization layers is averaged as in FedAvg.
Travels: body and head. Stays: every normalization layer's scale and shift, and BatchNorm's statistics. The optimizer's slots
start fresh every round, and Dropout draws as in FedAvg.
Unseen devices: its authors suggest the mean of the others' normalization, or statistics estimated on the device. The former
would have to travel, so such a device trains the exported normalization, statistics included, while the rest stands still.
Hyper-parameters: `unseen_epochs`, 0..50, default 10, for those: statistics move by `1 - momentum` a step, so few epochs of
few batches leave them near their initial values.
"""

from odt_sim.strategies.own_part import OwnPart


class FedBN(OwnPart):
    """FedAvg on everything but the normalization layers, which stay on the device."""

    needs = frozenset({"norm"})
    own = frozenset({"norm"})
