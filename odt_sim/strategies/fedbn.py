"""FedBN: normalization layers stay local.

Paper: Li et al. 2021, FedBN: Federated Learning on Non-IID Features via Local Batch Normalization.
Rule: all layers train together on the device; all except the normalization layers are averaged as in FedAvg.
Travels: body and head.
Stays: scale and shift of every normalization layer, and BatchNorm statistics. Optimizer slots start fresh every round,
and Dropout draws as in FedAvg.
Deviations: none.
Unseen devices train the exported normalization layers, statistics included, while the rest is fixed. The authors
suggest the mean of the other devices' normalization layers, which would have to travel, or statistics estimated on the
device.
Hyper-parameters: `unseen_epochs`, 0..50, default 10: statistics move by `1 - momentum` per step, so a few epochs of few
batches leave them near their initial values.
"""

from odt_sim.strategies.own_part import OwnPart


class FedBN(OwnPart):
    """FedAvg on everything except the normalization layers."""

    needs = frozenset({"norm"})
    own = frozenset({"norm"})
