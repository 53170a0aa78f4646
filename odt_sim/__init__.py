"""Simulate on-device training over a fleet, with the `.tflite` file that ships to phones."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError(
        "odt_sim: expected Linux or macOS, found Windows; use Windows Subsystem for Linux: "
        "https://learn.microsoft.com/windows/wsl"
    )

if TYPE_CHECKING:
    from odt_sim import plot as plot
    from odt_sim.device.device import Device as Device
    from odt_sim.device.plan import TrainingPlan as TrainingPlan
    from odt_sim.errors import OdtSimError as OdtSimError
    from odt_sim.model.tensors import ServerState as ServerState
    from odt_sim.model.tensors import Tensors as Tensors
    from odt_sim.model.tensors import array_of as array_of
    from odt_sim.model.tensors import weights_of as weights_of
    from odt_sim.model.trainable import TrainableModel as TrainableModel
    from odt_sim.model.weights import Weights as Weights
    from odt_sim.results import Results as Results
    from odt_sim.settings import Fleet as Fleet
    from odt_sim.simulation.run.coordinator import Simulation as Simulation
    from odt_sim.strategies.base import Strategy as Strategy
    from odt_sim.strategies.base import Update as Update
    from odt_sim.strategies.base import Updates as Updates
    from odt_sim.strategies.state import keep as keep
    from odt_sim.strategies.state import keep_optimizer as keep_optimizer
    from odt_sim.strategies.state import recall as recall
    from odt_sim.strategies.state import recall_optimizer as recall_optimizer
    from odt_sim.strategies.state import receive as receive
    from odt_sim.strategies.state import trained_by_gradients as trained_by_gradients

_STATE = ("keep", "keep_optimizer", "recall", "recall_optimizer", "receive", "trained_by_gradients")
_HOMES = {
    "Device": "odt_sim.device.device",
    "TrainingPlan": "odt_sim.device.plan",
    "OdtSimError": "odt_sim.errors",
    **dict.fromkeys(("ServerState", "Tensors", "array_of", "weights_of"), "odt_sim.model.tensors"),
    "TrainableModel": "odt_sim.model.trainable",
    "Weights": "odt_sim.model.weights",
    "Results": "odt_sim.results",
    "Fleet": "odt_sim.settings",
    "Simulation": "odt_sim.simulation.run.coordinator",
    **dict.fromkeys(("Strategy", "Update", "Updates"), "odt_sim.strategies.base"),
    **dict.fromkeys(_STATE, "odt_sim.strategies.state"),
}
"""The module of each name; a name is imported on first use, because subprocesses need few of them."""

__all__ = sorted([*_HOMES, "plot"])

_PACKAGES = (
    "aggregators",
    "attacks",
    "data",
    "deploy",
    "errors",
    "export",
    "fleet",
    "observers",
    "strategies",
    "testing",
    "trackers",
)
"""Modules with further names for user code; they are listed, and also imported on first use."""


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` or a module of the package; `__version__` is the installed package's version.

    Raises:
        AttributeError: There is no such name.
    """
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value
    if name == "__version__":
        return import_module("importlib.metadata").version("odt_sim")
    if find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; expected one of {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES, "__version__", *(name for name in globals() if name.startswith("__"))})
