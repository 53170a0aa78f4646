"""The number of actors that fit on nodes."""

import re

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.errors import SimulationError
from odt_sim.simulation.executors.ray import capacity as room
from odt_sim.simulation.executors.ray.capacity import check_memory, check_room, places

THREE = [{"CPU": 4.0, "node:a": 1.0}, {"CPU": 2.0, "phone": 3.0}, {"CPU": 1.0, "memory": 9.0}]


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ({"CPU": 1}, 4 + 2 + 1),
        ({"CPU": 0.5}, 8 + 4 + 2),
        ({"CPU": 0.3}, 13 + 6 + 3),
        ({"CPU": 0.1}, 40 + 20 + 10),  # 1 / 0.1 is a little off in floats
        ({"CPU": 1.5}, 2 + 1 + 0),
        ({"CPU": 3}, 1),
        ({"CPU": 5}, 0),
        ({"CPU": 0.5, "phone": 1}, 3),
        ({"CPU": 1, "phone": 1}, 2),
        ({"CPU": 0, "phone": 0.5}, 6),
    ],
)
def test_actor_fits_on_one_node_or_on_none(needs, expected):
    assert places(needs, THREE) == expected


@given(st.lists(st.integers(0, 64), max_size=5), st.integers(1, 10_000))
def test_resources_are_reserved_at_most_once(cpus, ten_thousandths):
    amount = ten_thousandths / 10_000
    nodes = [{"CPU": float(cpu)} for cpu in cpus]
    fitting = [places({"CPU": amount}, [node]) for node in nodes]
    assert places({"CPU": amount}, nodes) == sum(fitting)
    for cpu, count in zip(cpus, fitting, strict=True):
        assert count * ten_thousandths <= cpu * 10_000 < (count + 1) * ten_thousandths


def test_actors_without_needs_always_fit():
    check_room({"CPU": 0.0}, 100_000, THREE)


@pytest.mark.parametrize(
    ("needs", "actors", "message"),
    [
        (
            {"CPU": 0.5},
            15,
            "backend.actors: 15 actors need CPU 0.5 each, only 14 fit (nodes: 3, CPUs in total: 7); use",
        ),
        (
            {"CPU": 8},
            0,
            "backend.actors: 1 actor needs CPU 8, only 0 fit (nodes: 3, CPUs in total: 7)",
        ),
        (
            {"CPU": 1, "tablet": 1},
            1,
            "backend.resources: no node has tablet, found CPU, phone; start one with it: ray start --resources=",
        ),
    ],
)
def test_missing_room_is_one_line(needs, actors, message):
    check_room({"CPU": 0.5}, 14, THREE)
    with pytest.raises(SimulationError, match=re.escape(message)) as caught:
        check_room(needs, actors, THREE)
    assert "\n" not in str(caught.value)


def test_dedicated_actors_need_memory():
    """A node with memory for two and a half actors has room for two."""
    each = 100 << 20
    nodes = [{"CPU": 64.0, "memory": 2.5 * each}, {"CPU": 1.0, "memory": 3.0 * each}, {"CPU": 8.0}]
    check_memory(5, each, nodes)
    with pytest.raises(SimulationError) as caught:
        check_memory(6, each, nodes)
    assert str(caught.value) == (
        "backend.devices_per_actor=1: 6 actors need about 100 MB each, only 5 fit (nodes: 3); use "
        "fleet.devices of at most 5, or backend.devices_per_actor=auto, which hosts many devices per actor"
    )


def test_room_used_by_other_work_is_awaited(ray_session, monkeypatch):
    """More than everything is never free; a job that accepts less gets what is free."""
    monkeypatch.setattr(room, "GRACE", 0.1)
    monkeypatch.setattr(room, "WAIT", 0.3)
    cpus = int(ray.cluster_resources()["CPU"])
    assert 0 <= room.wait_for_room({"CPU": 1.0}, cpus + 1, least=0) <= cpus
    assert room.wait_for_room({"CPU": 0.0}, 5, least=5) == 5
    message = rf"backend\.actors: {cpus + 1} actors need CPU 1 each, only \d+ fit after 0\.3 s next to"
    with pytest.raises(SimulationError, match=message):
        room.wait_for_room({"CPU": 1.0}, cpus + 1, least=cpus + 1)
