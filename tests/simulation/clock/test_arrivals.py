"""An asynchronous server with three devices, against a schedule computed by hand, and staleness factors."""

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim.persistence.timeline import Outcome
from odt_sim.simulation.clock.asynchronous import (
    FLIGHT,
    Flights,
    NoDeviceError,
    Server,
    arrivals,
    staleness_factor,
)
from odt_sim.simulation.clock.timetable import Ids

SECONDS = np.array([3.0, 5.0, 11.0])


def lowest(count: int, time: float, without: Ids) -> Ids:
    """Choose the devices with the lowest ids instead of random ones."""
    return np.setdiff1d(np.arange(3), without)[:count]


def start(ids: Ids, time: float, leaves: float = np.inf) -> Flights:
    flights = np.zeros(len(ids), FLIGHT)
    flights["device"], flights["begin"] = ids, time
    flights["end"] = time + np.minimum(SECONDS[ids], leaves)
    flights["outcome"] = np.where(SECONDS[ids] <= leaves, Outcome.REPORTED, Outcome.LEFT)
    return flights


def leave_at_first(ids: Ids, time: float) -> Flights:
    """Start devices that leave after four seconds if they start at the beginning."""
    return start(ids, time, 4 if time < 1 else np.inf)


def test_updates_come_with_every_second_report() -> None:
    # 0 reports at 3, 1 at 5: update 1, both with the model of the start. From 5 on, 0 reports at 8 and 1 at 10: update 2.
    # From 10 on, 2 reports at 11, with a model two updates old, and 0 at 13: update 3.
    expected = [
        (5.0, [(0, 0), (1, 0)]),
        (10.0, [(0, 1), (1, 1)]),
        (13.0, [(2, 0), (0, 2)]),
    ]
    server = Server()
    for time, used in expected:
        found = arrivals(server, lowest, start, buffer=2, concurrency=3, devices=3)
        server = found.after
        assert server.time == time
        assert list(zip(found.used["device"].tolist(), found.used["version"].tolist(), strict=True)) == used
    assert server.version == 3
    assert server.flights["device"].tolist() == [1, 2]  # 2 started again at 11 s


def test_every_report_is_an_update_with_a_buffer_of_one() -> None:
    server, seen = Server(), []
    for _ in range(4):
        found = arrivals(server, lowest, start, buffer=1, concurrency=3, devices=3)
        server = found.after
        seen.append((server.time, int(found.used["device"][0]), int(found.used["version"][0])))
    assert seen == [(3.0, 0, 0), (5.0, 1, 0), (6.0, 0, 1), (9.0, 0, 3)]


def test_too_old_reports_are_dropped() -> None:
    server = Server()
    for _ in range(2):
        server = arrivals(server, lowest, start, buffer=2, concurrency=3, devices=3, max_staleness=1).after
    found = arrivals(server, lowest, start, buffer=2, concurrency=3, devices=3, max_staleness=1)
    assert found.stale["device"].tolist() == [2]  # two updates old at 11 s; it starts again
    assert found.used["device"].tolist() == [0, 1]
    assert found.after.time == 15


def test_devices_that_leave_make_room_for_others() -> None:
    found = arrivals(Server(), lowest, lambda ids, time: start(ids, time, leaves=4), buffer=1, concurrency=1, devices=3)
    assert found.used["device"].tolist() == [0]
    found = arrivals(Server(), lowest, leave_at_first, buffer=2, concurrency=2, devices=3)
    assert found.left["device"].tolist() == [1]
    assert found.used["device"].tolist() == [0, 2]
    assert found.after.time == 14  # device 2 starts at 3 s


def test_devices_that_left_start_again_when_no_other_can() -> None:
    found = arrivals(Server(), lowest, leave_at_first, buffer=3, concurrency=3, devices=3)
    assert found.left["device"].tolist() == [1, 2]
    assert found.used["device"].tolist() == [0, 1, 2]
    assert (found.after.time, found.started) == (615.0, 5)  # both start again at 604 s


@pytest.mark.parametrize(("leaves", "buffer", "since"), [(4.0, 2, 3.0), (np.inf, 4, 11.0)])
def test_server_gives_up_if_no_device_can_report(leaves: float, buffer: int, since: float) -> None:
    """Devices 1 and 2 leave each time, or all have reported."""
    with pytest.raises(NoDeviceError, match=f"^{since}$"):
        arrivals(Server(), lowest, lambda ids, time: start(ids, time, leaves), buffer=buffer, concurrency=3, devices=3)


def test_server_waits_for_devices() -> None:
    def later(count: int, time: float, without: Ids) -> Ids:
        return lowest(count, time, without) if time >= 1200 else np.empty(0, np.int64)

    found = arrivals(Server(), later, start, buffer=1, concurrency=1, devices=3)
    assert found.after.time == 1203


def test_server_waits_for_no_report_after_the_run() -> None:
    assert (
        arrivals(Server(), lowest, start, buffer=3, concurrency=3, devices=3, until=5) is None
    )  # reports at 3, 5 and 11 s
    assert arrivals(Server(), lowest, start, buffer=2, concurrency=3, devices=3, until=5).after.time == 5


def test_server_gives_up_without_devices() -> None:
    with pytest.raises(NoDeviceError):
        arrivals(
            Server(), lambda count, time, without: np.empty(0, np.int64), start, buffer=1, concurrency=1, devices=3
        )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("polynomial", [1, 0.5**0.5, 0.2**0.5, 1 / 3]),
        ("hinge", [1, 1, 1, 1 / 41]),
    ],
)
def test_staleness_factors(kind: str, expected: list[float]) -> None:
    staleness: NDArray[np.int64] = np.array([0, 1, 4, 8])
    np.testing.assert_allclose(staleness_factor(staleness, kind, exponent=0.5, after=4, slope=10), expected)
