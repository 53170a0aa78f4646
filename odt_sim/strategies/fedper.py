"""Federated learning with personalization layers.

Arivazhagan et al. 2019, Federated Learning with Personalization Layers, algorithms 1 and 2.
Rule: body and head train together on the device; the body is averaged as in FedAvg, the head never travels.
Travels: body and norm. Stays: the head; a device that has none yet, such as an unseen one, has the
exported, untrained one.
Hyper-parameters: none of its own; which layers are the head is said at export (`head=`, by default the last with weights).
"""

from odt_sim.model.manifest import Parameter
from odt_sim.strategies.base import Strategy


class FedPer(Strategy):
    """FedAvg on everything but the head, which stays on the device. A model that is all head has nothing to average."""

    needs = frozenset({"body", "head"})

    def shared(self, parameter: Parameter) -> bool:
        """All but the head travels."""
        return parameter.group != "head"
