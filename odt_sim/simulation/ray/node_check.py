"""What the node of an actor must have: this version of odt_sim, and sight of the run's storage."""

import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import ray

from odt_sim.errors import CheckpointError, FileError, SimulationError
from odt_sim.persistence.storage import PROBE, Storage


@dataclass(frozen=True)
class Expected:
    """What a node must have.

    Attributes:
        version: The version of odt_sim; of a folder that is not installed `unknown`.
        storage: Where devices' states are kept.
        probe: What the piece named `PROBE` there holds.
    """

    version: str
    storage: Storage
    probe: bytes


def expect(storage: Storage) -> Expected:
    """Puts a probe into a run's storage, and returns what nodes must have.

    Raises:
        FileError: The storage cannot be written.
    """
    expected = Expected(_version(), storage, secrets.token_bytes(16))
    storage.replace(PROBE, expected.probe)
    return expected


def withdraw(expected: Expected) -> None:
    """Removes the probe; where that fails the run has failed before, or needs it no more."""
    with suppress(FileError):
        expected.storage.delete([PROBE])


def check_node(expected: Expected) -> None:
    """Checks the node on which this runs.

    It is done for every strategy: what a strategy keeps on devices is known only once it runs, and states that each node
    keeps for itself are missed only when a device comes to another node.

    Raises:
        SimulationError: The node lacks something.
    """
    address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    here = f"node {address} ({socket.gethostname()})"
    found = _version()
    if found != expected.version:
        raise SimulationError(
            f"backend ray: {here} has odt_sim {found}, the run {expected.version}; install the same on all nodes"
        )
    try:
        seen = expected.storage.read(PROBE) == expected.probe
    except (CheckpointError, FileError):
        seen = False
    if not seen:
        place = expected.storage.where("").rstrip("/")
        raise SimulationError(
            f"run.storage: {here} does not see the run's {place}; give a place that all nodes see: "
            "run.storage=..., a shared folder or a URI"
        )


def _version() -> str:
    try:
        return version("odt_sim")
    except PackageNotFoundError:
        return "unknown"
