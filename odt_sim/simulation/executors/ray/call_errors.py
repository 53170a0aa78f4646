"""Results of actor calls, with Ray's exceptions as errors of odt_sim."""

import re
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ObjectLostError, RayActorError, RayError, RayTaskError

from odt_sim._support.text import first_line
from odt_sim.errors import OdtSimError, SimulationError

LOST = (RayActorError, ObjectLostError)  # errors after the death of a worker or node, whose blocks are run again


def result(reference: Any) -> Any:
    """Return a call's result, or raise its error.

    Raises:
        RayError: An error of `LOST`; the call can be repeated.
        OdtSimError: The call failed.
    """
    try:
        return ray.get(reference)
    except LOST as error:
        _check_modules(error)
        raise
    except RayTaskError as error:
        if isinstance(error.cause, OdtSimError):
            raise error.cause from None
        _check_modules(error)
        raise SimulationError(
            f"backend ray: a worker failed with {type(error.cause).__name__}: {first_line(error.cause)}; "
            "debug it with backend=serial"
        ) from error
    except RayError as error:
        raise SimulationError(
            f"backend ray: {type(error).__name__}: {first_line(error)}; see Ray's logs in /tmp/ray"
        ) from error


def is_own_death(lost: BaseException) -> bool:
    """Return whether a worker died by itself; dead nodes, lost objects and network errors are not a device's fault."""
    return isinstance(lost, ActorDiedError) and "its node has died" not in str(lost)  # Ray has no type for this case


def _check_modules(error: RayError) -> None:
    """Raise an error with advice if a node lacks a module."""
    text = str(error)
    if not (missing := re.search(r"No module named '([\w.]+)'", text)):
        return
    module, node = missing[1], re.search(r"\bip=([^,)]+)", text)
    where = f"node {node[1]}" if node else "a node"
    advice = (
        "install it there (pip install odt_sim)"
        if module.partition(".")[0] == "odt_sim"
        else "install it there, or upload the folder with your files: 'backend.runtime_env={working_dir: .}'"
    )
    raise SimulationError(f"backend ray: {where} has no module {module}; {advice}") from error
