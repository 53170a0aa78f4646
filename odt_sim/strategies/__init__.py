"""Personalization strategies, one file each."""

from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.fedper import FedPer
from odt_sim.strategies.local import Local

__all__ = ["FedAvg", "FedAvgFineTune", "FedPer", "Local"]
