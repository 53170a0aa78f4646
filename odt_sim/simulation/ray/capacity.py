"""How many actors a Ray has room for."""

import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray

from odt_sim.errors import SimulationError

Resources = Mapping[str, float]
"""Amounts by Ray's name of the resource: `CPU`, and what nodes were started with."""

WORKER_MEMORY = 30 << 20
"""Bytes that Ray takes in an actor of one device, beside Python, LiteRT and what actors share: see docs/scaling.md."""

GRACE = 2  # seconds in which what an earlier job reserved gets free
WAIT = 15  # seconds until other work on the cluster has to leave enough free


def node_resources() -> list[Resources]:
    """Returns what each living node has in all, free or not."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node["Resources"] for node in nodes if node["Alive"]]


def places(needs: Resources, nodes: Iterable[Resources]) -> int:
    """Returns how many actors with equal needs fit on nodes; an actor fits on one node or on none.

    Args:
        needs: What one actor reserves; of nothing there is always enough.
        nodes: What each node has.
    """
    return sum(_fitting(needs, node) for node in nodes)


def check_room(needs: Resources, actors: int, nodes: list[Resources]) -> None:
    """Checks that nodes could hold actors with equal needs, were nothing else on them.

    Raises:
        SimulationError: They could not; Ray would wait for ever.
    """
    known = {name for node in nodes for name in node}
    unknown = sorted(needs.keys() - known - {"CPU"})
    if unknown:
        own = sorted(name for name in known if not name.startswith(("node:", "memory", "object_store_memory")))
        raise SimulationError(
            f"backend.resources: no node has {unknown[0]}, found {', '.join(own)}; start one that has it: "
            f"ray start --resources='{{\"{unknown[0]}\": 1}}'"
        )
    asked, found = max(1, actors), places(needs, nodes)
    if found < asked:
        cpus = sum(node.get("CPU", 0) for node in nodes)
        raise SimulationError(
            f"backend.actors: expected room for {_told(asked, needs)}, found room for {found} (nodes: {len(nodes)}, CPUs "
            f"in all: {cpus:g}); ask for fewer, for less each (backend.num_cpus), or add nodes"
        )


def check_memory(devices: int, each: int, nodes: Sequence[Resources]) -> None:
    """Checks that nodes have the memory for an actor a device; without it the system would end some of them.

    Args:
        devices: How many there are.
        each: The bytes of memory of an actor.
        nodes: What each node has; `memory` is the bytes that were free when Ray started there, without the object store.

    Raises:
        SimulationError: They do not; its text says how many devices fit.
    """
    found = places({"memory": each}, nodes)
    if devices > found:
        raise SimulationError(
            f"backend.devices_per_actor=1: expected memory for {devices} actors of about {each >> 20} MB each, found "
            f"room for {found} (nodes: {len(nodes)}); choose fleet.devices of at most {found}, or "
            "backend.devices_per_actor=auto, where actors host many devices"
        )


def wait_for_room(needs: Resources, most: int, least: int) -> int:
    """Waits until actors with equal needs fit beside other work on the cluster.

    Args:
        needs: What one actor reserves.
        most: How many are to fit; waited for as long as earlier jobs of this process may take to end.
        least: How many have to fit; waited for longer.

    Returns:
        How many fit, `least` to `most`.

    Raises:
        SimulationError: Fewer than `least` fit after `WAIT` seconds.
    """
    started = time.monotonic()
    while (free := _fitting(needs, ray.available_resources())) < most:  # type: ignore[no-untyped-call]
        waited = time.monotonic() - started
        if waited > GRACE and free >= least:
            return free
        if waited > WAIT:
            raise SimulationError(
                f"backend.actors: expected room for {_told(least, needs)}, found room for {free} after {WAIT} s beside "
                "other work on the cluster; ask for fewer, or wait until that ends"
            )
        time.sleep(0.1)
    return most


def _told(actors: int, needs: Resources) -> str:
    amounts = ", ".join(f"{name} {amount:g}" for name, amount in needs.items() if amount)
    return f"{actors} of {amounts} each"


def _fitting(needs: Resources, node: Resources) -> int:
    fits = [math.floor(round(node.get(name, 0) / amount, 4)) for name, amount in needs.items() if amount]
    return min(fits, default=sys.maxsize)
