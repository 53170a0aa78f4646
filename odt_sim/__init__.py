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
    from odt_sim import plot
    from odt_sim.device.device import Device
    from odt_sim.device.plan import TrainingPlan
    from odt_sim.errors import OdtSimError
    from odt_sim.model.tensors import ServerState, Tensors, array_of, weights_of
    from odt_sim.model.trainable import TrainableModel
    from odt_sim.model.weights import Weights
    from odt_sim.results import Results
    from odt_sim.settings import Fleet
    from odt_sim.simulation.run.coordinator import Simulation
    from odt_sim.strategies.base import Strategy, Update, Updates
    from odt_sim.strategies.state import keep, keep_optimizer, recall, recall_optimizer, receive, trained_by_gradients

__all__ = [
    "Device",
    "Fleet",
    "OdtSimError",
    "Results",
    "ServerState",
    "Simulation",
    "Strategy",
    "Tensors",
    "TrainableModel",
    "TrainingPlan",
    "Update",
    "Updates",
    "Weights",
    "array_of",
    "keep",
    "keep_optimizer",
    "plot",
    "recall",
    "recall_optimizer",
    "receive",
    "trained_by_gradients",
    "weights_of",
]

_HOMES = {
    "Device": "odt_sim.device.device",
    "TrainingPlan": "odt_sim.device.plan",
    "OdtSimError": "odt_sim.errors",
    "ServerState": "odt_sim.model.tensors",
    "Tensors": "odt_sim.model.tensors",
    "array_of": "odt_sim.model.tensors",
    "weights_of": "odt_sim.model.tensors",
    "TrainableModel": "odt_sim.model.trainable",
    "Weights": "odt_sim.model.weights",
    "Results": "odt_sim.results",
    "Fleet": "odt_sim.settings",
    "Simulation": "odt_sim.simulation.run.coordinator",
    "Strategy": "odt_sim.strategies.base",
    "Update": "odt_sim.strategies.base",
    "Updates": "odt_sim.strategies.base",
    "keep": "odt_sim.strategies.state",
    "keep_optimizer": "odt_sim.strategies.state",
    "recall": "odt_sim.strategies.state",
    "recall_optimizer": "odt_sim.strategies.state",
    "receive": "odt_sim.strategies.state",
    "trained_by_gradients": "odt_sim.strategies.state",
}
"""The module of each name; a name is imported on first use, because subprocesses need few of them."""

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
