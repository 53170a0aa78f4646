"""Actors without a job, which later jobs of this process take over."""

from typing import Any

import ray

from odt_sim.simulation.ray.capacity import Resources
from odt_sim.simulation.ray.cluster import session

_idle: dict[str, tuple[Resources, list[Any]]] = {}  # by Ray session: what each reserves, and the actors


def take_idle(needs: Resources, most: int) -> list[Any]:
    """Returns up to `most` idle actors that reserve `needs` each; ends the others."""
    reserved, actors = _idle.pop(session(), (needs, []))
    kept = actors[:most] if reserved == needs else []
    for actor in actors[len(kept) :]:
        ray.kill(actor)
    return kept


def leave_idle(needs: Resources, actors: list[Any]) -> None:
    """Keeps actors that reserve `needs` each, until a job takes them or this process ends."""
    _idle[session()] = needs, actors
