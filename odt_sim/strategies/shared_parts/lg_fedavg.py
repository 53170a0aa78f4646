"""LG-FedAvg: local representations under a global head.

Paper: Liang et al. 2020, Think Locally, Act Globally: Federated Learning with Local and Global Representations.
Rule: body and head train together on the device; the head is averaged as in FedAvg, and the body never travels.
Travels: the head.
Stays: body and norm, BatchNorm statistics included. Optimizer slots start fresh every round, and Dropout draws as in
FedAvg.
Deviations: for unseen devices, the paper averages the outputs of all devices' models, which are too many for a phone.
Unseen devices train the exported body under the shared head before deployment.
Hyper-parameters: `unseen_epochs`, 0..50, default 10. The head is chosen at export.
"""

from odt_sim.strategies.two_models.personal import OwnPart


class LGFedAvg(OwnPart):
    """FedAvg on the head; everything below it stays on the device."""

    needs = frozenset({"body", "head"})
    own = frozenset({"body", "norm"})
