"""The number of actors that fit on the nodes of a Ray cluster."""

import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray

from odt_sim.errors import SimulationError

Resources = Mapping[str, float]
"""Amounts of resources by Ray's names: `CPU` or custom names."""

WORKER_MEMORY = 30 << 20
"""Bytes that Ray needs in an actor of one device, without Python, LiteRT and shared memory: see docs/scaling.md."""

GRACE = 2  # seconds that the actors of an earlier job of this process may take to end
WAIT = 15  # seconds to wait for other work on the cluster to free enough resources


def living_nodes() -> list[dict[str, Any]]:
    """Return Ray's records of the living nodes."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def node_resources() -> list[Resources]:
    """Return the total resources of each living node."""
    return [node["Resources"] for node in living_nodes()]


def places(needs: Resources, nodes: Iterable[Resources]) -> int:
    """Return the number of actors with equal needs that fit on nodes; an actor does not span nodes."""
    return sum(_fitting(needs, node) for node in nodes)


def check_room(needs: Resources, actors: int, nodes: list[Resources]) -> None:
    """Check that actors with equal needs fit on the nodes, if nothing else runs there.

    Raises:
        SimulationError: They do not fit; Ray would wait forever.
    """
    known = {name for node in nodes for name in node}
    if unknown := sorted(needs.keys() - known - {"CPU"}):
        custom = sorted(name for name in known if not name.startswith(("node:", "memory", "object_store_memory")))
        raise SimulationError(
            f"backend.resources: no node has {unknown[0]}, found {', '.join(custom)}; start one with it: "
            f"ray start --resources='{{\"{unknown[0]}\": 1}}'"
        )
    expected, found = max(1, actors), places(needs, nodes)
    if found < expected:
        cpus = sum(node.get("CPU", 0) for node in nodes)
        raise SimulationError(
            f"backend.actors: {_text(expected, needs)}, only {found} fit (nodes: {len(nodes)}, CPUs in total: "
            f"{cpus:g}); use fewer, reserve less for each (backend.num_cpus), or add nodes"
        )


def check_memory(devices: int, each: int, nodes: Sequence[Resources]) -> None:
    """Check that nodes have the memory for one actor per device; otherwise the system would kill some actors.

    Args:
        devices: The number of devices.
        each: The bytes of an actor.
        nodes: The resources of each node; `memory` is the free memory when Ray started there, without the object store.

    Raises:
        SimulationError: The memory is too small.
    """
    found = places({"memory": each}, nodes)
    if devices > found:
        raise SimulationError(
            f"backend.devices_per_actor=1: {devices} actors need about {each >> 20} MB each, only {found} fit "
            f"(nodes: {len(nodes)}); use fleet.devices of at most {found}, or backend.devices_per_actor=auto, "
            "which hosts many devices per actor"
        )


def wait_for_room(needs: Resources, most: int, least: int) -> int:
    """Wait until actors with equal needs fit alongside other work on the cluster.

    Args:
        needs: The resources of one actor.
        most: The number wanted, awaited for `GRACE` seconds.
        least: The number required, awaited for `WAIT` seconds.

    Returns:
        The number of actors that fit, from `least` to `most`.

    Raises:
        SimulationError: Fewer than `least` fit.
    """
    started = time.monotonic()
    while (free := free_places(needs)) < most:
        waited = time.monotonic() - started
        if waited > GRACE and free >= least:
            return free
        if waited > WAIT:
            raise SimulationError(
                f"backend.actors: {_text(least, needs)}, only {free} fit after {WAIT} s next to other work on the "
                "cluster; use fewer, or wait until that finishes"
            )
        time.sleep(0.1)
    return most


def free_places(needs: Resources) -> int:
    """Return the number of actors with equal needs that fit into the cluster's free resources now."""
    return _fitting(needs, ray.available_resources())  # type: ignore[no-untyped-call]


def _text(actors: int, needs: Resources) -> str:
    amounts = ", ".join(f"{name} {amount:g}" for name, amount in needs.items() if amount)
    return f"1 actor needs {amounts}" if actors == 1 else f"{actors} actors need {amounts} each"


def _fitting(needs: Resources, node: Resources) -> int:
    fits = [math.floor(round(node.get(name, 0) / amount, 4)) for name, amount in needs.items() if amount]
    return min(fits, default=sys.maxsize)
