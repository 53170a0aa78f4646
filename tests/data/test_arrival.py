"""The order in which examples arrive."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.data import Dataset, by_user, federate, iid
from odt_sim.data.devices.arrival import by_class, by_key, by_time, in_order, none
from odt_sim.data.devices.federated import SPLIT_AT_ONCE
from odt_sim.errors import ConfigurationError, DataError


def data_of(examples=24, devices=2, **settings):
    y = (np.arange(examples) % 4).astype(np.int32)
    x = np.arange(examples, dtype=np.float32)[:, None]
    return federate(Dataset("d", x, y, classes=4, **settings), iid, devices, 0, validation=0.0, test=0.25)


def examples_of(data, device):
    return data.indices[data.offsets[device, 0] : data.offsets[device, 3]]


def test_none_returns_the_data():
    data = data_of()
    assert none(data, 0) is data
    assert data.arrived(0, 7)[0].tolist() == data.train(0).tolist()


def test_a_devices_examples_are_cut_in_their_order_into_equal_parts():
    data = in_order(data_of(), 0, periods=3, rounds=2)
    for device in range(2):
        own = np.sort(examples_of(data, device))
        assert data.arrival.period[own].tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_rounds_walk_through_the_periods_and_stay_in_the_last():
    arrival = in_order(data_of(), 0, periods=3, rounds=2).arrival
    assert [arrival.at(round) for round in range(9)] == [0, 0, 0, 1, 1, 2, 2, 2, 2]


def test_a_device_trains_on_new_examples_or_on_all_so_far_and_is_tested_on_all_so_far():
    new, everything = (in_order(data_of(), 0, periods=3, rounds=2, keep=keep) for keep in ("new", "all"))
    period = new.arrival.period
    train, _, test = new.arrived(0, 3)
    assert set(period[train]) == {1}
    assert set(period[test]) <= {0, 1}
    assert set(period[everything.arrived(0, 3)[0]]) == {0, 1}
    assert np.array_equal(np.sort(everything.arrived(0, 6)[0]), np.sort(everything.train(0)))


def test_times_decide_over_the_order_of_the_data():
    data = by_time(data_of(times=-np.arange(24.0)), 0, periods=3, rounds=1)
    own = np.sort(examples_of(data, 0))
    assert data.arrival.period[own].tolist() == [2] * 4 + [1] * 4 + [0] * 4


def test_classes_arrive_one_after_another_in_one_order():
    data = by_class(data_of(80, 2), 3, periods=4, rounds=1)
    orders = [
        [data.y[examples_of(data, d)][data.arrival.period[examples_of(data, d)] == p] for p in range(4)] for d in (0, 1)
    ]
    firsts = [[np.bincount(labels).argmax() for labels in order] for order in orders]
    assert firsts[0] == firsts[1]
    assert sorted(firsts[0]) == [0, 1, 2, 3]


def test_own_key_decides():
    data = by_key(data_of(), 0, key=lambda data, seed: -np.arange(len(data.y)), periods=2, rounds=1)
    own = np.sort(examples_of(data, 1))
    assert data.arrival.period[own].tolist() == [1] * 6 + [0] * 6


def test_device_without_examples_in_a_period_is_named_with_its_user():
    dataset = Dataset("d", np.zeros((9, 1), np.float32), np.zeros(9, np.int32), users=np.repeat(["ann"], 9), classes=2)
    with pytest.raises(
        DataError, match=r"^device 0 \(user ann\): none of its 5 training examples is in period .* of 9"
    ):
        in_order(federate(dataset, by_user, None, 0), 0, periods=9)


def test_temporal_split_needs_sequences_that_end_with_each_period():
    x, users = np.arange(60, dtype=np.float32)[:, None], np.repeat([0], 60)
    dataset = Dataset("d", x, x, users=users, times=np.arange(60))
    with pytest.raises(DataError, match=r"in period 4 of 4; .*split.method=block give each period its own sequences"):
        by_time(federate(dataset, by_user, None, 0, method="block"), 0, periods=4)
    weekly = replace(dataset, sequences=np.arange(60) // 15)
    data = by_time(federate(weekly, by_user, None, 0, method="block"), 0, periods=4, rounds=1)
    for period in range(4):
        train, test = (part[data.arrival.period[part] == period] for part in (data.train(0), data.test(0)))
        assert len(train)
        assert len(test)
        assert train.max() < test.min()


def test_devices_of_a_fleet_that_is_split_on_demand_are_checked():
    many = SPLIT_AT_ONCE + 1
    dataset = Dataset("d", np.zeros((5 * many, 1), np.float32), np.zeros(5 * many, np.int32), classes=2)
    data = federate(dataset, iid, many, 0)
    assert data.deferred
    with pytest.raises(DataError, match=r"none of its 3 training examples is in period . of 4"):
        in_order(data, 0, periods=4)


@given(st.integers(12, 60), st.integers(1, 3), st.integers(2, 4), st.integers(0, 5))
def test_each_example_of_a_device_arrives_once(examples, devices, periods, seed):
    try:
        data = in_order(data_of(examples, devices), seed, periods=periods, rounds=1)
    except DataError:
        return  # a device without training examples in a period
    for device in range(devices):
        train = data.train(device)
        arrived = [data.arrived(device, round)[0] for round in range(1, periods + 1)]
        assert np.array_equal(np.sort(np.concatenate(arrived)), np.sort(train))
        sizes = np.bincount(data.arrival.period[examples_of(data, device)], minlength=periods)
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(
    ("arrive", "message"),
    [
        (lambda d: by_time(d, 0), r"data d: has no times; set their column"),
        (lambda d: in_order(d, 0, periods=1), r"arrival.periods: expected a whole number of at least 2, found 1"),
        (lambda d: in_order(d, 0, rounds=0), r"arrival.rounds: expected a whole number of at least 1, found 0"),
        (lambda d: in_order(d, 0, keep="old"), r"arrival.keep: expected new or all, found 'old'"),
        (lambda d: in_order(d, 0, periods=12), r"device \d: none of its 9 training examples is in period \d+ of 12"),
        (
            lambda d: by_key(d, 0, key=lambda *_: np.zeros(3)),
            r"arrival.key: returned float64 \[3\], expected a number for",
        ),
    ],
)
def test_bad_settings_are_refused(arrive, message):
    with pytest.raises((DataError, ConfigurationError), match=message):
        arrive(data_of())


def test_classes_need_one_label_each():
    dataset = Dataset("d", np.zeros((12, 1), np.float32), np.zeros((12, 2), np.float32))
    with pytest.raises(DataError, match="expected one class label for each example; use arrival=in_order"):
        by_class(federate(dataset, iid, 2, 0), 0)
