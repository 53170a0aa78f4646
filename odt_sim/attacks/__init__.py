"""Attacks: the behaviour of hostile devices (`fleet.hostile`), one file each."""

from odt_sim.attacks.backdoor import Backdoor
from odt_sim.attacks.base import Attack
from odt_sim.attacks.label_poisoning import LabelPoisoning
from odt_sim.attacks.random_updates import RandomUpdates
from odt_sim.attacks.scaling import Scaling

__all__ = ["Attack", "Backdoor", "LabelPoisoning", "RandomUpdates", "Scaling"]
