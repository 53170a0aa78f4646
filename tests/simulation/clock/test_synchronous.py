"""Synchronous rounds of three devices, against schedules computed by hand."""

import numpy as np
import pytest

from odt_sim.persistence.timeline import Outcome
from odt_sim.simulation.clock.synchronous import synchronous_course
from odt_sim.simulation.clock.timetable import Course, Trips

REPORTED, PARTIAL, LATE, LEFT = Outcome.REPORTED, Outcome.PARTIAL, Outcome.LATE, Outcome.LEFT


def trips(leaves: tuple[float, float, float] = (np.inf, np.inf, np.inf)) -> Trips:
    """Return devices that need 2 + 10 + 3, 4 + 40 + 6 and 1 + 5 + 1 seconds: 15, 50 and 7 in all."""
    columns = ((2, 4, 1), (10, 40, 5), (3, 6, 1), leaves)
    return Trips(np.zeros(3), *(np.array(column, np.float64) for column in columns))


def outcomes(course: Course) -> list[int]:
    return course.outcomes.tolist()


def test_round_waits_for_its_slowest_device() -> None:
    course = synchronous_course(trips(), 3)
    assert course.end == 50
    assert outcomes(course) == [REPORTED] * 3
    assert course.stops.tolist() == [15, 50, 7]
    assert course.computes.tolist() == [10, 40, 5]


def test_round_ends_with_the_reports_that_it_needs() -> None:
    course = synchronous_course(trips(), 2)
    assert course.end == 15
    assert outcomes(course) == [REPORTED, LATE, REPORTED]
    assert course.computes.tolist() == [10, 11, 5]  # the slow one is told after 15 s, 4 of them download
    assert course.downloads.tolist() == [1, 1, 1]
    assert course.uploads.tolist() == [1, 0, 1]


def test_round_ends_at_its_deadline() -> None:
    course = synchronous_course(trips(), 3, deadline=30)
    assert course.end == 30
    assert outcomes(course) == [REPORTED, LATE, REPORTED]
    assert course.stops.tolist() == [15, 30, 7]
    assert course.computes.tolist() == [10, 26, 5]


def test_partial_work_reaches_the_server_at_the_deadline() -> None:
    course = synchronous_course(trips(), 3, deadline=30, units=4, partial=True)
    assert outcomes(course) == [REPORTED, PARTIAL, REPORTED]
    assert course.units.tolist() == [4, 2, 4]  # it computes from 4 to 24 s: 20 of 40, 2 of 4 epochs
    assert course.computes.tolist() == [10, 20, 5]
    assert course.stops.tolist() == [15, 30, 7]
    assert course.end == 30
    assert course.uploads.tolist() == [1, 1, 1]


def test_part_below_one_unit_is_lost() -> None:
    course = synchronous_course(trips(), 3, deadline=30, units=1, partial=True)
    assert outcomes(course) == [REPORTED, LATE, REPORTED]


def test_device_that_leaves_is_lost_and_its_work_counts() -> None:
    course = synchronous_course(trips((5, np.inf, np.inf)), 3)
    assert outcomes(course) == [LEFT, REPORTED, REPORTED]
    assert course.stops.tolist() == [5, 50, 7]
    assert course.computes.tolist() == [3, 40, 5]
    assert course.uploads.tolist() == [0, 1, 1]


def test_device_that_leaves_during_its_download() -> None:
    course = synchronous_course(trips((1, np.inf, np.inf)), 3)
    assert outcomes(course)[0] == LEFT
    assert course.downloads.tolist() == [0.5, 1, 1]
    assert course.computes.tolist() == [0, 40, 5]


def test_partial_work_of_a_device_that_leaves() -> None:
    course = synchronous_course(trips((np.inf, 24, np.inf)), 3, units=4, partial=True)
    assert outcomes(course) == [REPORTED, PARTIAL, REPORTED]
    assert course.units.tolist() == [4, 2, 4]
    assert course.end == 30


def test_device_that_leaves_after_the_end_is_late() -> None:
    course = synchronous_course(trips((np.inf, 20, np.inf)), 2)
    assert course.end == 15
    assert outcomes(course) == [REPORTED, LATE, REPORTED]


def test_round_without_reports_ends_when_all_have_left() -> None:
    course = synchronous_course(trips((3, 20, 2)), 2)
    assert course.end == 20
    assert outcomes(course) == [LEFT] * 3


def test_nobody_reports_by_a_deadline_that_is_too_short() -> None:
    course = synchronous_course(trips(), 2, deadline=5)
    assert course.end == 5
    assert outcomes(course) == [LATE] * 3


@pytest.mark.parametrize("seed", range(20))
def test_work_is_never_more_than_planned_and_ends_with_the_round(seed: int) -> None:
    random = np.random.default_rng(seed)
    leaves = np.where(random.random(50) < 0.5, random.uniform(0, 30, 50), np.inf)
    drawn = Trips(random.uniform(0, 3, 50), *random.uniform(0, 10, (3, 50)), leaves)
    deadline = 12.0 if seed % 2 else None
    course = synchronous_course(drawn, 30, deadline=deadline, units=3, partial=seed % 3 == 0)
    spent = drawn.wait + course.downloads * drawn.download + course.computes + course.uploads * drawn.upload
    assert (spent[course.stops > drawn.wait] <= course.stops[course.stops > drawn.wait] + 1e-9).all()
    assert (course.computes <= drawn.compute).all()
    assert (course.stops <= course.end + 1e-9).all()
    assert course.used.sum() <= 30
    assert (course.uploads[course.used] > 1 - 1e-9).all()


def test_devices_begin_at_their_next_check_in() -> None:
    waiting = Trips(np.array([20.0, 0.0, 100.0]), *(getattr(trips(), name) for name in ("download", "compute", "upload")),
                    np.array([np.inf, np.inf, 60.0]))  # fmt: skip
    course = synchronous_course(waiting, 2)
    assert course.end == 50
    assert course.stops.tolist() == [35, 50, 50]
    assert outcomes(course) == [REPORTED, REPORTED, LATE]
    assert course.downloads.tolist() == [1, 1, 0]
