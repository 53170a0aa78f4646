"""Personalization strategies, one file each."""

from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.fedbabu import FedBABU
from odt_sim.strategies.fedbn import FedBN
from odt_sim.strategies.fedper import FedPer
from odt_sim.strategies.fedrep import FedRep
from odt_sim.strategies.lg_fedavg import LGFedAvg
from odt_sim.strategies.local import Local
from odt_sim.strategies.reptile import Reptile

__all__ = ["FedAvg", "FedAvgFineTune", "FedBABU", "FedBN", "FedPer", "FedRep", "LGFedAvg", "Local", "Reptile"]
