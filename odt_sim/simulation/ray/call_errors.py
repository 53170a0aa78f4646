"""The result of a call, and what Ray raises as errors of ours."""

import re
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ObjectLostError, RayActorError, RayError, RayTaskError

from odt_sim.errors import OdtSimError, SimulationError

LOST = (RayActorError, ObjectLostError)  # what a dead worker or node leaves: its blocks are done again


def result(reference: Any) -> Any:
    """Returns a call's result, or raises what it raised there.

    Raises:
        RayError: One of `LOST`: the call can be made again.
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
            f"backend ray: a worker failed with {type(error.cause).__name__}: {one_line(error.cause)}; "
            "run it with backend=serial to debug it"
        ) from error
    except RayError as error:
        raise SimulationError(
            f"backend ray: {type(error).__name__}: {one_line(error)}; look at Ray's own logs"
        ) from error


def is_workers(lost: BaseException) -> bool:
    """Whether one of `LOST` tells of a worker's own death: a node's, a lost object or the network is no device's fault."""
    return isinstance(lost, ActorDiedError) and "its node has died" not in str(lost)  # Ray tells it in words alone


def _check_modules(error: RayError) -> None:
    """Raises an error that says what to do, where a node lacks a module."""
    text = str(error)
    if not (missing := re.search(r"No module named '([\w.]+)'", text)):
        return
    module, node = missing[1], re.search(r"\bip=([^,)]+)", text)
    where = f"node {node[1]}" if node else "a node"
    do = (
        "install it there (pip install odt_sim)"
        if module.partition(".")[0] == "odt_sim"
        else "install it there, or send the folder of your own files: backend.runtime_env={working_dir: .}"
    )
    raise SimulationError(f"backend ray: {where} has no module {module}; {do}") from error


def one_line(error: BaseException) -> str:
    """Returns the first line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
