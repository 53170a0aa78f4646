"""Data sources, partitions over devices, splits of each device's examples, and drifts."""

from odt_sim.data.checks.leakage import Leakage, LeakageWarning, check_leakage, find_leakage
from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.drift import Drift, colour, label_permutation, rotation
from odt_sim.data.devices.federated import FederatedData, Partition, federate
from odt_sim.data.devices.partition import by_user, dirichlet, iid, pathological, quantity_skew
from odt_sim.data.sources.audio_files import audio
from odt_sim.data.sources.builtin import digits, function, keras_dataset, npz, tf_data
from odt_sim.data.sources.fedprox_synthetic import pfedme_synthetic, synthetic
from odt_sim.data.sources.hugging_face import hugging_face, saved_hugging_face
from odt_sim.data.sources.image_files import images
from odt_sim.data.sources.parquet_files import parquet
from odt_sim.data.sources.published import femnist, school, sent140, shakespeare, uci_har
from odt_sim.data.sources.tables import data_frame, table

__all__ = [
    "Dataset",
    "Drift",
    "FederatedData",
    "Leakage",
    "LeakageWarning",
    "Partition",
    "audio",
    "by_user",
    "check_leakage",
    "colour",
    "data_frame",
    "digits",
    "dirichlet",
    "federate",
    "femnist",
    "find_leakage",
    "function",
    "hugging_face",
    "iid",
    "images",
    "keras_dataset",
    "label_permutation",
    "npz",
    "parquet",
    "pathological",
    "pfedme_synthetic",
    "quantity_skew",
    "rotation",
    "saved_hugging_face",
    "school",
    "sent140",
    "shakespeare",
    "synthetic",
    "table",
    "tf_data",
    "uci_har",
]
