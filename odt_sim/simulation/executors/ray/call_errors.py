"""Results of actor calls, with Ray's exceptions as errors of odt_sim."""

from typing import Any

import ray
from ray.exceptions import ActorDiedError, ObjectLostError, RayActorError, RayError, RaySystemError, RayTaskError

from odt_sim._support.text import first_line
from odt_sim.errors import OdtSimError, SimulationError
from odt_sim.simulation.executors.ray.capacity import living_nodes

LOST = (RayActorError, ObjectLostError)  # errors after the death of a worker or node, whose blocks are run again


def result(reference: Any) -> Any:
    """Return a call's result, or raise its error.

    Raises:
        RayError: An error of `LOST`; the call can be repeated.
        OdtSimError: The call failed.
    """
    try:
        return ray.get(reference)
    except LOST:
        raise
    except RayTaskError as error:
        if isinstance(error.cause, OdtSimError):
            raise error.cause from None
        advice = "debug it with backend=serial"
        if isinstance(error.cause, RaySystemError):  # the job could not be unpickled there, mostly for lack of a module
            advice = "install its modules on all nodes, or upload your folder: 'backend.runtime_env={working_dir: .}'"
        raise SimulationError(
            f"backend ray: a worker failed with {type(error.cause).__name__}: {first_line(error.cause)}; {advice}"
        ) from error
    except RayError as error:
        raise SimulationError(
            f"backend ray: {type(error).__name__}: {first_line(error)}; see Ray's logs in /tmp/ray"
        ) from error


def is_own_death(lost: BaseException, node: str) -> bool:
    """Return whether a worker died by itself; dead nodes, lost objects and network errors are not a device's fault.

    Args:
        lost: The error of a call.
        node: The id of the worker's node.
    """
    return isinstance(lost, ActorDiedError) and any(each["NodeID"] == node for each in living_nodes())
