"""Availability: known shares, transitions of the Markov chain, traces, and time zones."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.fleet.availability import Always, Availability, Charging, Daily, Markov, Trace
from odt_sim.fleet.habits import DAY, HOUR, Habits, offset_of
from tests.fleet.conftest import alike

MANY = np.arange(40_000)
CHAIN = Markov(7, on=2 * HOUR, off=6 * HOUR)
UTC = Habits(7, alike(len(MANY)))


def test_all_devices_are_always_available() -> None:
    assert Always().available(MANY, 1e9).all()
    assert np.isinf(Always().until(MANY, 0.0)).all()


@pytest.mark.parametrize("hour", [2, 5, 8, 14, 20])
def test_daily_share_follows_the_local_time(hour: int) -> None:
    share = 0.1 + 0.3 * (1 + np.cos(2 * np.pi * (hour - 2) / 24)) / 2
    found = Daily(UTC, peak=0.4, low=0.1).available(MANY, 3 * DAY + hour * HOUR).mean()
    assert found == pytest.approx(share, abs=0.01)


def test_device_is_available_around_the_peak_once_a_day() -> None:
    hours = np.arange(14, 38, 0.5) * HOUR + DAY
    states = np.stack([Daily(UTC).available(MANY[:500], time) for time in hours])
    assert (np.abs(np.diff(states.astype(int), axis=0)).sum(0) <= 2).all()


@pytest.mark.parametrize("availability", [Daily(UTC), Charging(UTC), CHAIN], ids=["daily", "charging", "markov"])
def test_devices_stay_available_until_the_time_given(availability: Availability) -> None:
    ids, time = MANY[:2000], 5.4e5 + 23 * HOUR
    on, until = availability.available(ids, time), availability.until(ids, time)
    assert 0 < on.sum() < len(ids)
    assert_array_equal(until > time, on)
    assert_array_equal(until[~on], time)
    for part in (0.1, 0.5, 0.999):
        assert availability.available(ids[on], time + part * (until[on] - time)).all()
    ended = availability.available(ids[on], until[on] + 1e-3)
    assert ended.mean() < 0.1  # a daily device that is available at the low of one day may be so on the next


def test_device_that_is_available_at_the_low_stays_for_the_day() -> None:
    low = 5 * DAY + 14 * HOUR
    on, until = Daily(UTC).available(MANY, low), Daily(UTC).until(MANY, low)
    assert on.mean() == pytest.approx(0.1, abs=0.01)
    assert_array_equal(until, np.where(on, low + DAY, low))


@pytest.mark.parametrize("availability", [Daily(UTC), Charging(UTC), CHAIN], ids=["daily", "charging", "markov"])
def test_state_depends_on_seed_device_and_time_only(availability: Availability) -> None:
    some = np.array([30_000, 5, 77])
    times = np.array([3e5, 4e5, 5e5])
    alone = [availability.available(np.array([id]), time)[0] for id, time in zip(some, times, strict=True)]
    assert_array_equal(availability.available(some, times), alone)
    assert_array_equal(availability.available(some, 3e5), availability.available(MANY, 3e5)[some])


def test_markov_chain_has_its_shares_and_transitions() -> None:
    now = CHAIN.available(MANY, 1e6)
    assert now.mean() == pytest.approx(0.25, abs=0.01)
    for hours in (0.5, 3):
        decay = np.exp(-hours * (1 / 2 + 1 / 6))
        later = CHAIN.available(MANY, 1e6 + hours * HOUR)
        assert later[now].mean() == pytest.approx(0.25 + 0.75 * decay, abs=0.015)
        assert later[~now].mean() == pytest.approx(0.25 - 0.25 * decay, abs=0.01)
    left = (CHAIN.until(MANY, 1e6)[now] - 1e6) / HOUR  # exponential, without memory
    assert left.mean() == pytest.approx(2, abs=0.08)
    assert left.std() == pytest.approx(2, abs=0.12)


def test_devices_charge_at_night_in_their_time_zone(habits: Habits) -> None:
    ids = np.arange(2000)
    zones = habits.zones
    assert zones is not None
    assert (zones == 1).mean() == pytest.approx(2 / 3, abs=0.04)
    alike = Habits(habits.seed, habits.population)
    for zone, hours in ((0, 1), (1, -5)):
        there = ids[zones == zone]
        time = 4 * DAY + 1.3 * HOUR
        assert_array_equal(habits.charging(there, time - hours * HOUR), alike.charging(there, time))
        assert habits.charging(there, 4 * DAY + 17 * HOUR - hours * HOUR).mean() == 0
        assert habits.charging(there, 4 * DAY + 3 * HOUR - hours * HOUR).mean() > 0.5


def test_nights_follow_each_other(habits: Habits) -> None:
    ids, time = np.arange(2000), 6.1e5
    begin, end = habits.night(ids, time)
    after = habits.next_night(ids, time)
    assert (begin <= time).all()
    assert (time < after).all()
    assert (end < after).all()
    assert_array_equal(habits.night(ids, after)[0], after)
    assert (end - begin >= 5 * HOUR - 1).all()
    assert (end - begin <= 9 * HOUR).all()


def test_charging_device_is_on_wifi_and_another_for_its_share(habits: Habits) -> None:
    ids, time = np.arange(2000), 4 * DAY + 8 * HOUR
    charging, wifi = habits.charging(ids, time), habits.wifi(ids, time)
    assert wifi[charging].all()
    assert wifi[~charging].mean() == pytest.approx(0.5, abs=0.05)


def test_unknown_time_zone_is_refused() -> None:
    assert (offset_of("Europe/Berlin"), offset_of("Asia/Kolkata")) == (1, 5.5)
    for name in ("Europe/Bonn", "../etc", ""):
        with pytest.raises(
            ConfigurationError, match=r"fleet.availability.time_zones: expected names such as Europe/Berlin"
        ):
            offset_of(name)


def traced(tmp_path: Path, lines: Sequence[str], header: str = "device,from,to", period: float | None = None) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join([header, *lines]))
    return Trace.read(path, 4, period)


def test_trace_is_followed(tmp_path: Path) -> None:
    trace = traced(tmp_path, ["2,50,60", "0,0,10", "0,20,30", "2,5,15", "3,100,200"])
    ids = np.arange(4)
    for time, on in ((0, [0]), (5, [0, 2]), (10, [2]), (20, [0]), (49.5, []), (55, [2]), (199, [3])):
        assert np.flatnonzero(trace.available(ids, time)).tolist() == on, time
    assert_allclose(trace.until(ids, 7), [10, 7, 15, 7])
    assert_array_equal(trace.available(np.array([2, 0, 2]), np.array([14.0, 25.0, 15.0])), [True, True, False])
    with pytest.raises(
        SimulationError, match=r"the trace ends after 0.0555556 h, but the run is at 0.0555556 h; use a longer"
    ):
        trace.available(ids, 200)


def test_intervals_of_a_trace_that_touch_are_one(tmp_path: Path) -> None:
    hours = [f"{device},{3600 * hour},{3600 * (hour + 1)}" for device in (0, 2) for hour in (1, 0, 2, 4)]
    trace = traced(tmp_path, [*hours, "1,10800,20000"])
    assert_allclose(trace.until(np.array([0, 1, 2]), 100), [10800, 100, 10800])
    assert_allclose(trace.until(np.array([0, 1, 2]), 15000), [18000, 20000, 18000])


def test_trace_of_a_day_repeats(tmp_path: Path) -> None:
    # 0: from 22 h to 6 h, over midnight; 1: all day; 2: from 9 h to 10 h; 3: never
    day = ["0,0,21600", "0,79200,86400", "1,0,86400", "2,32400,36000"]
    trace, long = traced(tmp_path, day, period=86400), np.random.default_rng(0).uniform(0, 10 * 86400, 2000)
    hour = np.mod(long, 86400) / 3600
    assert_array_equal(trace.available(np.zeros(2000, int), long), (hour < 6) | (hour >= 22))
    assert_array_equal(trace.available(np.full(2000, 2), long), (hour >= 9) & (hour < 10))
    ids = np.arange(4)
    for days in (0, 1, 1000):
        for time, ends in ((1, [6, np.inf, 1, 1]), (9.5, [9.5, np.inf, 10, 9.5]), (23, [30, np.inf, 23, 23])):
            begin = 86400.0 * days
            assert_allclose(trace.until(ids, begin + 3600 * time), begin + 3600 * np.array(ends), rtol=1e-12)


def test_digest_is_that_of_the_intervals(tmp_path: Path) -> None:
    digest = traced(tmp_path, ["0,0,10", "1,5,9"]).digest
    assert traced(tmp_path, ["1,5,9", "0,5,10", "0,0,5"]).digest == digest
    assert traced(tmp_path, ["1,5,9", "0,0,11"]).digest != digest


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0,0,10", "0,9,20"], "two intervals of device 0 overlap, 0 to 10 and 9 to 20; merge them"),
        (["4,0,10"], "line 2: expected a device from 0 to 3, found 4"),
        (["1,10,10"], "line 2: expected 0 <= from < to, found 10 and 10"),
        (["1,-1,10"], "line 2: expected 0 <= from < to, found -1 and 10"),
        (["1,1"], "line 2: expected a device's number and two times in seconds, found 1, 1, None"),
        (["a,1,2"], "line 2: expected a device's number and two times in seconds, found a, 1, 2"),
        ([], "has no rows, so no device is ever available"),
    ],
)
def test_trace_that_does_not_fit_is_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        traced(tmp_path, lines)
    assert message in str(caught.value)


def test_interval_that_a_repeated_trace_cannot_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"line 2: ends at 90000 s, after the 86400 s at which the trace"):
        traced(tmp_path, ["0,79200,90000"], period=86400)
    with pytest.raises(ConfigurationError, match=r"found 79200 and 21600; split an interval over midnight in two"):
        traced(tmp_path, ["0,79200,21600"], period=86400)


def test_trace_without_a_column_or_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"lacks the column 'to'; expected device, from, to, found device, from$"
    ):
        traced(tmp_path, ["1,2"], header="device,from")
    with pytest.raises(ConfigurationError, match="cannot read the trace"):
        Trace.read(tmp_path / "none.csv", 4)
