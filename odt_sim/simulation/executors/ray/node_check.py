"""Requirements of a node: this version of odt_sim, and access to the run's storage."""

import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import ray

from odt_sim.errors import CheckpointError, FileError, SimulationError
from odt_sim.persistence.environment import version_of
from odt_sim.persistence.object_store import ObjectStore
from odt_sim.persistence.storage import PROBE, Storage

CREDENTIALS = ("AWS_", "AZURE_", "FSSPEC_", "GCSFS_", "GOOGLE_")
"""The prefixes of the environment variables that fsspec's packages read."""


@dataclass(frozen=True)
class Expected:
    """The requirements that a node must meet.

    Attributes:
        version: The version of odt_sim; `not installed` for a source tree.
        storage: The run's storage.
        probe: The content of the file `PROBE` in the storage.
    """

    version: str
    storage: Storage
    probe: bytes


def expect(storage: Storage) -> Expected:
    """Write a probe into a run's storage, and return the requirements of nodes.

    Raises:
        FileError: The storage cannot be written.
    """
    expected = Expected(version_of("odt_sim"), storage, secrets.token_bytes(16))
    storage.replace(PROBE, expected.probe)
    return expected


def credentials(storage: Storage) -> Mapping[str, str]:
    """Return the environment variables that give access to object stores; empty if the storage is a folder."""
    names = [name for name in os.environ if name.startswith(CREDENTIALS)] if isinstance(storage, ObjectStore) else []
    return {name: os.environ[name] for name in names}


def withdraw(expected: Expected) -> None:
    """Remove the probe, if possible."""
    with suppress(FileError):
        expected.storage.delete([PROBE])


def check_node(expected: Expected) -> None:
    """Check the node of this process.

    The storage is checked for every strategy, because it is not known in advance whether devices keep states.

    Raises:
        SimulationError: The node does not meet a requirement.
    """
    node = f"node {ray.util.get_node_ip_address()} ({socket.gethostname()})"  # type: ignore[no-untyped-call]
    found = version_of("odt_sim")
    if found != expected.version:
        raise SimulationError(
            f"backend ray: {node} has odt_sim {found}, the run {expected.version}; install the same on all nodes"
        )
    try:
        problem = "" if expected.storage.read(PROBE) == expected.probe else "found another run's files"
    except (CheckpointError, FileError) as error:
        problem = str(error)
    if problem:
        place = expected.storage.where("").rstrip("/")
        raise SimulationError(
            f"run.storage: {node} cannot access the run's {place} ({problem}); choose a place that all nodes can access: "
            "run.storage=..., a shared folder or a URI"
        )
