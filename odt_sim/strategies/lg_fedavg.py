"""Local representations under a global head.

Liang et al. 2020, Think Locally, Act Globally: Federated Learning with Local and Global Representations (LG-FedAvg).
Rule: body and head train together on the device; the head is averaged as in FedAvg, the body never travels.
Travels: the head. Stays: body and norm, BatchNorm statistics included. The optimizer's slots start fresh every round,
and Dropout draws as in FedAvg.
Unseen devices: the paper lets all devices' models vote, which no phone can hold; here such a device trains the exported body
under the shared head before it is deployed to.
Hyper-parameters: `unseen_epochs`, 0..50, default 10, for those; which layers are the head is said at export.
"""

from odt_sim.strategies.own_part import OwnPart


class LGFedAvg(OwnPart):
    """FedAvg on the head alone; everything below it stays on the device."""

    needs = frozenset({"body", "head"})
    own = frozenset({"body", "norm"})
