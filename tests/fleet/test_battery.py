"""Batteries: known charges, conservation of energy, and a floor that training never crosses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from odt_sim.fleet.battery import Batteries
from odt_sim.fleet.habits import DAY, HOUR, Habits
from tests.fleet.conftest import alike

HABITS = Habits(7, alike(50))  # 36 kJ, charged with 5 W, 0.25 W when idle
FULL, EMPTY_FLOOR = 36_000.0, 0.2 * 36_000.0
IDS = np.arange(50)
FRESH = Batteries(HABITS, floor=0.2)
BEGIN, END = HABITS.night(IDS, 3 * DAY + 18 * HOUR)
"""The last night of each device before that evening."""


def test_battery_is_full_after_a_night_and_drains_by_day() -> None:
    assert_allclose(FRESH.charge(IDS, END), FULL)
    assert_allclose(FRESH.charge(IDS, END + 2 * HOUR), FULL - 0.25 * 2 * HOUR)
    begin = HABITS.next_night(IDS, END)
    left = FULL - 0.25 * (begin - END)
    assert_allclose(FRESH.charge(IDS, begin), left)
    assert_allclose(FRESH.charge(IDS, begin + 300), left + 5 * 300)
    assert_allclose(FRESH.level(IDS, END), 1)


def test_training_drains_a_battery_and_the_night_fills_it() -> None:
    start, seconds, joules = END + HOUR, np.full(50, 600.0), np.full(50, 6000.0)
    after = FRESH.after(IDS, start, seconds, joules)
    assert_allclose(after.charge(IDS, start + seconds), FULL - 0.25 * HOUR - 6000)
    assert_allclose(after.charge(IDS, start + seconds + HOUR), FULL - 2 * 0.25 * HOUR - 6000)
    assert_allclose(after.charge(IDS, END + DAY + 2 * HOUR), FRESH.charge(IDS, END + DAY + 2 * HOUR))
    assert len(after.pruned(float(END.max()) + 2 * DAY).ids) == 0
    assert after.pruned(float((start + seconds).max())).ids.tolist() == IDS.tolist()


def test_later_work_of_a_device_replaces_its_state() -> None:
    seconds, joules = np.full(50, 600.0), np.full(50, 6000.0)
    once = FRESH.after(IDS, END + HOUR, seconds, joules)
    some = IDS[10:13]
    twice = once.after(some, END[some] + 2 * HOUR, seconds[some], joules[some])
    assert_array_equal(twice.ids, IDS)
    again = np.isin(IDS, some)
    left = FULL - 0.25 * (2 * HOUR - 600 * again) - 6000 * (1 + again)
    assert_allclose(twice.charge(IDS, END + 2 * HOUR + 600), left)


def test_battery_is_at_least_empty() -> None:
    after = FRESH.after(IDS, END + HOUR, np.full(50, 600.0), np.full(50, 2 * FULL))
    assert_array_equal(after.joules, 0)


def test_charge_arrives_during_work() -> None:
    start, seconds = HABITS.next_night(IDS, END) + 60, np.full(50, 100.0)
    before = FRESH.charge(IDS, start)
    after = FRESH.after(IDS, start, seconds, np.full(50, 300.0))
    assert_allclose(after.charge(IDS, start + 100), before - 300 + 5 * 100)
    assert_array_equal(FRESH.fraction(IDS, start, seconds, np.full(50, 1e9)) < 1e-3, True)
    assert_array_equal(FRESH.fraction(IDS, start, seconds, np.full(50, 499.0)), 1)


def test_a_short_piece_of_work_late_in_a_run_is_whole() -> None:
    begins = END + HOUR + np.linspace(0, 600, 50)
    assert_array_equal(FRESH.fraction(IDS, begins, np.full(50, 0.0123), np.full(50, 0.05)), 1)


work = st.tuples(st.integers(0, 49), st.floats(0, 40 * HOUR), st.floats(1, 4 * HOUR), st.integers(0, 30), st.booleans())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(work, max_size=12))
def test_training_never_takes_a_battery_below_the_floor_and_energy_is_conserved(
    works: list[tuple[int, float, float, int, bool]],
) -> None:
    batteries, time, busy = FRESH, float(END.max()), dict[int, float]()
    for device, wait, long, watts, prunes in works:
        time += wait
        ids, seconds, joules = np.array([device]), np.array([long]), np.array([watts * long])
        if busy.get(device, 0) > time:
            continue
        before = batteries.charge(ids, time)
        part = batteries.fraction(ids, time, seconds, joules)
        assert 0 <= part <= 1
        seconds, joules = part * seconds, part * joules
        batteries = batteries.after(ids, time, seconds, joules)
        busy[device] = time + float(seconds[0])
        left = batteries.charge(ids, busy[device])
        assert left >= min(EMPTY_FLOOR, before[0]) - 1e-3
        assert left <= FULL
        charged = 5 * sum(
            np.clip(min(end, busy[device]) - max(begin, time), 0, None) for begin, end in nights(device, time)
        )
        assert left <= before - joules + charged + 1e-3
        if before + charged <= FULL:  # no charge is lost because the battery is full
            assert_allclose(left, before - joules + charged, rtol=1e-7)
        if prunes:
            batteries = batteries.pruned(time)


def nights(device: int, time: float) -> list[tuple[float, float]]:
    """Return the nights of a device that work may cover, from the last one before a time."""
    ids, found, at = np.array([device]), [], time
    for _ in range(3):
        begin, end = HABITS.night(ids, at)
        found.append((float(begin[0]), float(end[0])))
        at = float(HABITS.next_night(ids, at)[0])
    return found


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 5 * DAY), st.floats(0, 3 * DAY))
def test_charge_does_not_depend_on_what_is_pruned(start: float, wait: float) -> None:
    begin = 4 * DAY + start
    after = FRESH.after(IDS, begin, np.full(50, 900.0), np.full(50, 9000.0))
    then = begin + 900 + wait
    assert_allclose(after.pruned(then).charge(IDS, then), after.charge(IDS, then), rtol=1e-12)


def test_devices_above_the_floor_are_found_without_computing_every_charge() -> None:
    hungry = Habits(7, alike(50, idle_watts=0.6))
    for habits in (HABITS, hungry):
        batteries = Batteries(habits, floor=0.2).after(IDS[::3], END[::3], np.full(17, 60.0), np.full(17, 28_000.0))
        for hours in (0.5, 4, 9, 13):
            time = float(END.max()) + hours * HOUR
            assert_array_equal(batteries.usable(IDS, time), batteries.level(IDS, time) > 0.2)
    assert not batteries.usable(IDS, time).all()


def test_committed_arrays_restore_the_batteries() -> None:
    after = FRESH.after(IDS[5:9], END[5:9], np.full(4, 60.0), np.arange(4.0))
    again = FRESH.restored(after.state())
    assert_array_equal(again.charge(IDS, END + 70), after.charge(IDS, END + 70))
