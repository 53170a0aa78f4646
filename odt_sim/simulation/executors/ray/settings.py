"""Checks of the Ray backend's settings, before any Ray starts."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ray.runtime_env import RuntimeEnv

from odt_sim._support.text import first_line
from odt_sim.errors import ConfigurationError

RESERVED = {
    "CPU": "use backend.num_cpus",
    **dict.fromkeys(("GPU", "memory", "object_store_memory"), "actors do not use it"),
}


def check_settings(
    address: Any, actors: Any, devices_per_actor: Any, num_cpus: Any, resources: Any, runtime_env: Any
) -> None:
    """Check the settings of `RayBackend`.

    Raises:
        ConfigurationError: A setting has the wrong type or is out of range.
    """
    if not isinstance(address, str) or not re.fullmatch(r"local|auto|.+:\d+", address):
        raise ConfigurationError(f"backend.address: expected local, auto or host:port, found {address!r}")
    if address.startswith("ray://"):
        raise ConfigurationError(
            f"backend.address={address}: Ray Client cannot access the memory of a node; run odt-sim on a node of the "
            "cluster with backend.address=auto, or by ray job submit"
        )
    if devices_per_actor not in (1, "auto"):
        raise ConfigurationError(f"backend.devices_per_actor: expected 1 or auto, found {devices_per_actor!r}")
    if actors is not None and not (isinstance(actors, int) and actors >= 1):
        raise ConfigurationError(f"backend.actors: expected at least 1 or null, found {actors}")
    if num_cpus is not None and not _is_amount(num_cpus):
        raise ConfigurationError(f"backend.num_cpus: expected a number above 0 or null, found {num_cpus!r}")
    if resources is not None:
        _check_resources(resources, local=address == "local")
    if runtime_env is not None:
        _check_runtime_env(runtime_env)


def _check_resources(resources: Any, *, local: bool) -> None:
    if not isinstance(resources, Mapping):
        raise ConfigurationError(f"backend.resources: expected {{name: amount}} or null, found {resources!r}")
    for name, amount in resources.items():
        if name in RESERVED:
            raise ConfigurationError(f"backend.resources: expected custom resources, found {name}; {RESERVED[name]}")
        if not _is_amount(amount):
            raise ConfigurationError(f"backend.resources.{name}: expected a number above 0, found {amount!r}")
    if resources and local:
        raise ConfigurationError(
            "backend.resources: expected null for backend.address=local, which only has CPUs, "
            f"found {', '.join(resources)}; give the address of a cluster"
        )


def _check_runtime_env(runtime_env: Any) -> None:
    if not isinstance(runtime_env, Mapping):
        raise ConfigurationError(f"backend.runtime_env: expected {{field: value}} or null, found {runtime_env!r}")
    fields = sorted(name for name in RuntimeEnv.known_fields if not name.startswith("_"))
    for name in runtime_env:
        if name not in fields:
            raise ConfigurationError(f"backend.runtime_env: unknown field {name}; expected one of {', '.join(fields)}")
    try:
        RuntimeEnv(**runtime_env)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"backend.runtime_env: {first_line(error)}") from error


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
