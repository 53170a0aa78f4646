"""What the settings of the Ray backend may be."""

import math
from collections.abc import Mapping
from typing import Any

from ray.runtime_env import RuntimeEnv

from odt_sim.errors import ConfigurationError
from odt_sim.simulation.ray.call_errors import one_line

OWN_KEYS = {"CPU": "backend.num_cpus", "GPU": None, "memory": None, "object_store_memory": None}


def check_settings(
    actors: Any, devices_per_actor: Any, num_cpus: Any, resources: Any, runtime_env: Any, *, local: bool
) -> None:
    """Checks the settings of `RayBackend`, which says what they mean.

    Raises:
        ConfigurationError: One is of another type, or out of its range.
    """
    if devices_per_actor not in (1, "auto"):
        raise ConfigurationError(f"backend.devices_per_actor: expected 1 or auto, found {devices_per_actor!r}")
    if actors is not None and not (isinstance(actors, int) and actors >= 1):
        raise ConfigurationError(f"backend.actors: expected at least 1 or null, found {actors}")
    if num_cpus is not None and not _is_amount(num_cpus):
        raise ConfigurationError(f"backend.num_cpus: expected a number above 0 or null, found {num_cpus!r}")
    _check_resources(resources, local=local)
    _check_runtime_env(runtime_env)


def _check_resources(resources: Any, *, local: bool) -> None:
    if resources is None:
        return
    if not isinstance(resources, Mapping):
        raise ConfigurationError(f"backend.resources: expected {{name: amount}} or null, found {resources!r}")
    for name, amount in resources.items():
        if name in OWN_KEYS:
            way = f"say it by {OWN_KEYS[name]}" if OWN_KEYS[name] else "odt_sim's actors use none"
            raise ConfigurationError(f"backend.resources: expected names of your own, found {name}; {way}")
        if not _is_amount(amount):
            raise ConfigurationError(f"backend.resources.{name}: expected a number above 0, found {amount!r}")
    if resources and local:
        raise ConfigurationError(
            "backend.resources: expected null for backend.address=local, whose Ray has none but CPUs, "
            f"found {', '.join(resources)}; give the address of a cluster"
        )


def _check_runtime_env(runtime_env: Any) -> None:
    if runtime_env is None:
        return
    if not isinstance(runtime_env, Mapping):
        raise ConfigurationError(f"backend.runtime_env: expected {{field: value}} or null, found {runtime_env!r}")
    fields = sorted(name for name in RuntimeEnv.known_fields if not name.startswith("_"))
    for name in runtime_env:
        if name not in fields:
            raise ConfigurationError(f"backend.runtime_env: Ray knows no {name}; choose of {', '.join(fields)}")
    try:
        RuntimeEnv(**runtime_env)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"backend.runtime_env: {one_line(error)}; correct it") from error


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
