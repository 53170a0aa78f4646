"""FedPer: federated learning with personalization layers.

Paper: Arivazhagan et al. 2019, Federated Learning with Personalization Layers, algorithms 1 and 2.
Rule: body and head train together on the device; the body is averaged as in FedAvg, and the head never travels.
Travels: body and norm, BatchNorm statistics included.
Stays: the head. Optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: none.
Unseen devices, which the paper does not treat, train the exported head under the shared body before deployment.
Hyper-parameters: `unseen_epochs`, 0..50, default 10. The head is chosen at export (`head=`, by default the last layer
with weights).
"""

from odt_sim.strategies.two_models.personal import OwnPart


class FedPer(OwnPart):
    """FedAvg on everything except the head. A model without a body has nothing to average."""

    needs = frozenset({"body", "head"})
    own = frozenset({"head"})
