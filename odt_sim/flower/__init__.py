"""Devices and strategies in Flower; needs the extra `flower`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odt_sim._support.system import check_extra

if TYPE_CHECKING:
    from odt_sim.flower.backend import server_app
    from odt_sim.flower.client import client_app
    from odt_sim.flower.messages import initial_arrays, weights_of

__all__ = ["client_app", "initial_arrays", "server_app", "weights_of"]

_MODULES = {"client_app": "client", "initial_arrays": "messages", "server_app": "backend", "weights_of": "messages"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, since it needs Flower."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_extra("flower")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
