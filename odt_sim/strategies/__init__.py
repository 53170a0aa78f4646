"""Personalization strategies, one file each."""

from odt_sim.strategies.afl import AFL
from odt_sim.strategies.apfl import APFL
from odt_sim.strategies.apple import APPLE
from odt_sim.strategies.clustered import Clustered
from odt_sim.strategies.ditto import Ditto
from odt_sim.strategies.fedadagrad import FedAdagrad
from odt_sim.strategies.fedadam import FedAdam
from odt_sim.strategies.fedala import FedALA
from odt_sim.strategies.fedamp import FedAMP
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.fedavgm import FedAvgM
from odt_sim.strategies.fedbabu import FedBABU
from odt_sim.strategies.fedbn import FedBN
from odt_sim.strategies.feddbe import FedDBE
from odt_sim.strategies.feddistill import FedDistill
from odt_sim.strategies.feddyn import FedDyn
from odt_sim.strategies.fedem import FedEM
from odt_sim.strategies.fedfomo import FedFomo
from odt_sim.strategies.fedkd import FedKD
from odt_sim.strategies.fedlc import FedLC
from odt_sim.strategies.fednova import FedNova
from odt_sim.strategies.fedntd import FedNTD
from odt_sim.strategies.fedpac import FedPAC
from odt_sim.strategies.fedper import FedPer
from odt_sim.strategies.fedphp import FedPHP
from odt_sim.strategies.fedproto import FedProto
from odt_sim.strategies.fedprox import FedProx
from odt_sim.strategies.fedrep import FedRep
from odt_sim.strategies.fedrod import FedRoD
from odt_sim.strategies.fedyogi import FedYogi
from odt_sim.strategies.head_only import HeadOnly
from odt_sim.strategies.ifca import IFCA
from odt_sim.strategies.interpolation import Interpolation
from odt_sim.strategies.knn_per import KNNPer
from odt_sim.strategies.lg_fedavg import LGFedAvg
from odt_sim.strategies.local import Local
from odt_sim.strategies.lora import LoRA
from odt_sim.strategies.moon import Moon
from odt_sim.strategies.mr_mtl import MRMTL
from odt_sim.strategies.perfedavg import PerFedAvg
from odt_sim.strategies.pfedhn import PFedHN
from odt_sim.strategies.pfedme import PFedMe
from odt_sim.strategies.qffl import QFFL
from odt_sim.strategies.reptile import Reptile
from odt_sim.strategies.scaffold import Scaffold

__all__ = [
    "AFL",
    "APFL",
    "APPLE",
    "IFCA",
    "MRMTL",
    "QFFL",
    "Clustered",
    "Ditto",
    "FedALA",
    "FedAMP",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgFineTune",
    "FedAvgM",
    "FedBABU",
    "FedBN",
    "FedDBE",
    "FedDistill",
    "FedDyn",
    "FedEM",
    "FedFomo",
    "FedKD",
    "FedLC",
    "FedNTD",
    "FedNova",
    "FedPAC",
    "FedPHP",
    "FedPer",
    "FedProto",
    "FedProx",
    "FedRep",
    "FedRoD",
    "FedYogi",
    "HeadOnly",
    "Interpolation",
    "KNNPer",
    "LGFedAvg",
    "LoRA",
    "Local",
    "Moon",
    "PFedHN",
    "PFedMe",
    "PerFedAvg",
    "Reptile",
    "Scaffold",
]
