"""Federated learning with personalization layers.

Arivazhagan et al. 2019, Federated Learning with Personalization Layers, algorithms 1 and 2.
Rule: body and head train together on the device; the body is averaged as in FedAvg, the head never travels.
Travels: body and norm, BatchNorm statistics included. Stays: the head. The optimizer's slots start fresh every round,
and Dropout draws as in FedAvg.
Unseen devices, of which the paper says nothing, train the exported head under the shared body before they are deployed to.
Hyper-parameters: `unseen_epochs`, 0..50, default 10, for those; which layers are the head is said at export (`head=`, by
default the last with weights).
"""

from odt_sim.strategies.own_part import OwnPart


class FedPer(OwnPart):
    """FedAvg on everything but the head, which stays on the device. A model that is all head has nothing to average."""

    needs = frozenset({"body", "head"})
    own = frozenset({"head"})
