"""Data sources, partitions over devices, splits of each device's examples, and drifts."""

from odt_sim.data.checks.leakage import Leakage as Leakage
from odt_sim.data.checks.leakage import LeakageWarning as LeakageWarning
from odt_sim.data.checks.leakage import check_leakage as check_leakage
from odt_sim.data.checks.leakage import find_leakage as find_leakage
from odt_sim.data.dataset import Dataset as Dataset
from odt_sim.data.devices.drift import Drift as Drift
from odt_sim.data.devices.drift import colour as colour
from odt_sim.data.devices.drift import label_permutation as label_permutation
from odt_sim.data.devices.drift import rotation as rotation
from odt_sim.data.devices.federated import FederatedData as FederatedData
from odt_sim.data.devices.federated import Partition as Partition
from odt_sim.data.devices.federated import federate as federate
from odt_sim.data.devices.partition import by_user as by_user
from odt_sim.data.devices.partition import dirichlet as dirichlet
from odt_sim.data.devices.partition import iid as iid
from odt_sim.data.devices.partition import pathological as pathological
from odt_sim.data.devices.partition import quantity_skew as quantity_skew
from odt_sim.data.sources.audio_files import audio as audio
from odt_sim.data.sources.builtin import digits as digits
from odt_sim.data.sources.builtin import function as function
from odt_sim.data.sources.builtin import keras_dataset as keras_dataset
from odt_sim.data.sources.builtin import npz as npz
from odt_sim.data.sources.builtin import tf_data as tf_data
from odt_sim.data.sources.fedprox_synthetic import pfedme_synthetic as pfedme_synthetic
from odt_sim.data.sources.fedprox_synthetic import synthetic as synthetic
from odt_sim.data.sources.hugging_face import hugging_face as hugging_face
from odt_sim.data.sources.hugging_face import saved_hugging_face as saved_hugging_face
from odt_sim.data.sources.image_files import images as images
from odt_sim.data.sources.parquet_files import parquet as parquet
from odt_sim.data.sources.published import femnist as femnist
from odt_sim.data.sources.published import school as school
from odt_sim.data.sources.published import sent140 as sent140
from odt_sim.data.sources.published import shakespeare as shakespeare
from odt_sim.data.sources.published import uci_har as uci_har
from odt_sim.data.sources.tables import data_frame as data_frame
from odt_sim.data.sources.tables import table as table

__all__ = sorted(name for name, value in globals().items() if callable(value) and name[0] != "_")
