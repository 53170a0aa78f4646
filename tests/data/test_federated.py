import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.drift import label_permutation
from odt_sim.data.devices.federated import SPLIT_AT_ONCE, federate
from odt_sim.data.devices.partition import by_user, dirichlet, iid, pathological
from odt_sim.data.devices.split import split, split_by_block
from odt_sim.data.devices.standardization import scales, standardized
from odt_sim.errors import ConfigurationError, DataError

MANY = SPLIT_AT_ONCE + 1


def make(examples=60, classes=3):
    x = np.arange(examples, dtype=np.float32)[:, np.newaxis]
    y = (np.arange(examples) % classes).astype(np.int32)
    return Dataset("d", x, y, np.arange(examples) // 10, classes)


def test_each_device_is_split_by_its_number():
    dataset = make()
    data = federate(dataset, iid, 4, 5, validation=0.25, test=0.25)
    assert data.devices == 4
    for device, part in enumerate(iid(dataset, 4, 5)):
        expected = split(part, dataset.y, 5, device, validation=0.25, test=0.25)
        found = (data.train(device), data.validation(device), data.test(device))
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]
    assert data.train_sizes.tolist() == [len(data.train(device)) for device in range(4)]


def test_arrays_as_numpy_makes_them_are_converted():
    x, y = np.zeros((12, 2)), np.arange(12) % 3
    data = federate(Dataset("d", x, y), iid, 2, 0)
    assert (x.dtype, data.x.dtype) == (np.float64, np.float32)
    assert (y.dtype, data.y.dtype, data.classes) == (np.int64, np.int32, 3)


@pytest.mark.parametrize("short", [{"y": np.zeros(3, np.int32)}, {"users": np.arange(6) // 3}])
def test_arrays_of_other_lengths_are_refused(short):
    arrays = {"x": np.zeros((12, 2), np.float32), "y": np.zeros(12, np.int32), "users": np.arange(12) // 6, **short}
    with pytest.raises(
        DataError, match=r"^data d: lengths differ: x \[12, 2\], y .*each array needs one entry per example"
    ):
        federate(Dataset("d", **arrays), by_user, None, 0)


def test_repr_is_one_line():
    data = federate(make(), iid, 4, 5)
    assert repr(data) == f"FederatedData(d: 4 devices, 60 examples of shape [1], 3 classes, {data.spread})"
    dataset = Dataset("d", np.zeros((2, 8, 1), np.float32), np.zeros(2))
    assert repr(dataset) == "Dataset(d: 2 examples of shape [8, 1], regression)"


def test_split_methods():
    """Labels alternate: a stratified test part has equal counts, a block is the end of each sequence in time."""
    dataset = replace(make(), sequences=np.arange(60) // 30)
    stratified, at_random, by_block = (
        federate(dataset, iid, 1, 0, method=method) for method in ("stratified", "random", "block")
    )
    assert np.bincount(dataset.y[stratified.test(0)]).tolist() == [4, 4, 4]
    assert at_random.test(0).tolist() == split(np.arange(60), None, 0, 0)[2].tolist()
    expected = split_by_block(np.arange(60), dataset.sequences, 0)
    found = (by_block.train(0), by_block.validation(0), by_block.test(0))
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    assert by_block.test(0).tolist() == [*range(24, 30), *range(54, 60)]
    backwards = federate(replace(dataset, times=-np.arange(60)), iid, 1, 0, method="block")
    assert backwards.test(0).tolist() == [*range(6), *range(30, 36)]
    assert [data.spread for data in (stratified, at_random, by_block)] == [
        "iid validation=0.2 test=0.2",
        "iid validation=0.2 test=0.2 split=random",
        "iid validation=0.2 test=0.2 split=block gap=1",
    ]


def test_each_device_standardizes_by_its_training_examples():
    dataset = replace(make(), standardize=True)
    raw, data = federate(make(), by_user, None, 0), federate(dataset, by_user, None, 0)
    for device in range(6):
        train = raw.x[raw.train(device)]
        for part in ("train", "validation", "test"):
            rows = getattr(raw, part)(device)
            assert getattr(data, part)(device).tolist() == rows.tolist()
            np.testing.assert_allclose(data.x[rows], (raw.x[rows] - train.mean()) / train.std(), rtol=1e-5)
    assert dataset.x.tolist() == make().x.tolist()
    assert data.spread == f"{raw.spread} standardized"  # counts as other data in comparisons


def test_integers_alone_are_not_standardized():
    with pytest.raises(DataError, match=r"data d: standardize: expected float inputs, found only integers; store x"):
        federate(Dataset("d", np.zeros((20, 1), np.int64), np.arange(20) % 2, standardize=True), iid, 2, 0)


def test_standardization_uses_own_training_examples():
    """Two devices; constant features are centered, and an example without device stays unchanged."""
    x = np.array([[0, 7], [4, 7], [6, 9], [10, 5], [1, 1], [3, 1], [2, 1], [8, 8]], np.float32)
    offsets = np.array([[0, 2, 3, 4], [4, 6, 6, 7]])
    after = standardized(x, scales(x, np.arange(7), offsets), np.arange(7), offsets)
    expected = [[-1, 0], [1, 0], [2, 2], [4, -2], [-1, 0], [1, 0], [0, 0], [8, 8]]
    assert after.tolist() == expected
    assert after.dtype == np.float32
    assert x[0].tolist() == [0, 7]


def test_standardization_by_one_example_centers():
    x, offsets = np.array([[3.0], [5.0], [4.0]], np.float32), np.array([[0, 1, 2, 3]])
    after = standardized(x, scales(x, np.arange(3), offsets), np.arange(3), offsets)
    assert after.tolist() == [[0], [2], [1]]


def test_gap_between_blocks_is_left_out():
    data = federate(make(), by_user, None, 0, method="block")  # six users of ten examples
    assert data.train(2).tolist() == [20, 21, 22, 23]
    assert (data.validation(2).tolist(), data.test(2).tolist()) == ([25, 26], [28, 29])
    assert data.train(3).tolist() == [30, 31, 32, 33]
    assert len(data.indices) == 48


def test_unknown_split_method_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"split\.method: expected stratified, random, block or given, found 'time'"
    ):
        federate(make(), iid, 2, 0, method="time")


@pytest.mark.parametrize(
    ("partition", "devices", "seed", "message"),
    [
        (iid, 2.0, 0, r"fleet\.devices: expected a whole number or null, found 2\.0"),
        (iid, 2, None, r"seed: expected a whole number of at least 0, found None"),
        (partial(dirichlet, alpha="1"), 2, 0, r"partition\.alpha: expected a number above 0, found '1'"),
        (
            partial(dirichlet, alpha=1, min_examples="1"),
            2,
            0,
            r"partition\.min_examples: expected a whole number, found '1'",
        ),
        (
            partial(pathological, classes_per_device=1.5),
            2,
            0,
            r"partition\.classes_per_device: .*, found 1\.5",
        ),
    ],
)
def test_numbers_of_another_type_are_refused(partition, devices, seed, message):
    with pytest.raises((ConfigurationError, DataError), match=f"^{message}"):
        federate(make(), partition, devices, seed)


def test_arrays_are_shared():
    dataset = make()
    data = federate(dataset, partial(dirichlet, alpha=1.0), 3, 0)
    assert data.x is dataset.x
    assert data.y is dataset.y
    assert all(np.shares_memory(part(1), data.indices) for part in (data.train, data.validation, data.test))


def test_arrays_are_read_only_views():
    x = np.zeros((12, 2), np.float32)
    data = federate(Dataset("d", x, np.zeros(12, np.float32)), iid, 3, 0)
    assert np.shares_memory(data.x, x)
    for name in ("x", "y", "indices", "offsets"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, name)[:] = 0
    x[:] = 1  # the caller's own array stays writable


@pytest.mark.parametrize("devices", [3, MANY])
def test_pickling_shares_the_arrays_once(devices):
    data = federate(replace(make(3 * devices), users=None), iid, devices, 0)
    buffers = []
    content = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    again = pickle.loads(content, buffers=[buffer.raw().toreadonly() for buffer in buffers])
    assert (again.name, again.classes, again.devices, again.spread) == ("d", 3, devices, data.spread)
    for name in ("x", "y", "indices", "offsets"):
        assert np.shares_memory(getattr(again, name), getattr(data, name))
        assert not getattr(again, name).flags.writeable
    assert again.test(2).tolist() == data.test(2).tolist()
    assert len(buffers) == 4


def test_devices_have_the_user_whose_examples_they_hold():
    data = federate(make(), by_user, 4, 0)
    assert [data.x[data.train(device)[0], 0] // 10 for device in range(4)] == data.users.tolist()
    named = replace(make(), users=np.array(["b", "a", "10", "2", "c", "d"])[np.arange(60) // 10])
    assert federate(named, by_user, None, 0).users.tolist() == ["10", "2", "a", "b", "c", "d"]
    assert federate(make(), iid, 4, 0).users is None


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("x", np.nan, "2 values that are NaN .*; remove or fill them"),
        ("x", np.inf, "2 values that are NaN .*; remove or fill them"),
        ("y", np.nan, "1 value that is NaN .*; remove or fill it"),
    ],
)
def test_examples_that_are_not_finite_are_refused(key, value, found):
    arrays = {"x": np.zeros((12, 2), np.float32), "y": np.zeros(12, np.float32)}
    arrays[key][5] = value
    with pytest.raises(DataError, match=rf"^data d: {key} has {found.replace('.*', '.*, the first in example 5')}$"):
        federate(Dataset("d", **arrays), iid, 3, 0)


def test_by_user_determines_the_number_of_devices():
    data = federate(make(), by_user, None, 0)
    assert data.devices == 6
    assert sorted([*data.train(2), *data.validation(2), *data.test(2)]) == list(range(20, 30))


def test_regression_is_stratified_by_value():
    dataset = Dataset("r", np.zeros((40, 1), np.float32), np.arange(40, dtype=np.float32))
    data = federate(dataset, iid, 1, 0, validation=0.25, test=0.25)
    assert np.abs(np.sort(dataset.y[data.test(0)]) - (np.arange(10) * 4 + 1.5)).max() <= 2.5


def test_targets_of_several_values_are_split_at_random():
    dataset = Dataset("m", np.zeros((10, 1), np.float32), np.zeros((10, 2), np.float32))
    assert federate(dataset, iid, 2, 0).train_sizes.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([[0, 1, 2], [2, 3, 4]], "the partition of data d: uses example 2 2 times"),
        ([[0, 1, 2], [3, 4, 60]], r"the partition of data d: has indices 0\.\.60, expected 0\.\.59"),
        ([[0, 1, 2]], "the partition of data d: created 1 device, expected 2"),
        ([[0, 1, 2], [3]], r"device 1 \(user 0\): expected at least 3 examples .*, found 1; choose"),
        ([[], []], "device 0: expected at least 3 examples .*, found 0, and too few on 1 other device; choose"),
    ],
)
def test_invalid_partition_is_refused(parts, message):
    arrays = [np.array(part, np.int64) for part in parts]
    with pytest.raises(DataError, match=message):
        federate(make(), lambda dataset, devices, seed: arrays, 2, 0)


@pytest.mark.parametrize("method", ["stratified", "random", "block", "given"])
@pytest.mark.parametrize(("users", "named"), [([4, 9], "9"), (["ann", "李雷"], "李雷")])
def test_error_about_a_device_names_its_user(method, users, named):
    owners, parts = np.array(users)[[0, 0, 0, 1]], np.array([0, 1, 2, 0])
    dataset = Dataset("d", np.zeros((4, 1), np.float32), np.zeros(4, np.float32), users=owners, parts=parts)
    with pytest.raises(DataError, match=rf"device 1 \(user {named}\): .*(found 1|0 test examples)"):
        federate(dataset, by_user, None, 0, method=method)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            (part for part in [[0, 1, 2]]),
            r"d: returned a generator, expected a list of index arrays, .*list\(\.\.\.\)$",
        ),
        (None, "d: returned a NoneType, expected a list of index arrays, one per device"),
        ([[0.0, 1.0, 2.0]], r"assigned device 0 float64 \[3\], expected a list of example indices$"),
        ([0], r"assigned device 0 int64 \[\], expected a list of example indices$"),
    ],
)
def test_partition_of_another_type_is_refused_in_one_line(parts, message):
    with pytest.raises(DataError, match=message) as caught:
        federate(make(), lambda dataset, devices, seed: parts, 1, 0)
    assert "\n" not in str(caught.value)


def test_fractions_are_checked_before_the_partition_is_made():
    message = r"split: expected validation and test to sum to below 1, found 0\.6 and 0\.4"
    with pytest.raises(ConfigurationError, match=message):
        federate(make(), iid, 2, 0, validation=0.6, test=0.4)


@pytest.mark.parametrize("devices", [SPLIT_AT_ONCE, MANY])
def test_large_fleet_is_two_arrays(devices):
    data = federate(make(examples=5 * devices), iid, devices, 0)
    assert data.offsets.shape == (devices, 4)
    assert len(data.indices) == 5 * devices
    assert np.array_equal(data.offsets[1:, 0], data.offsets[:-1, 3])
    assert data.train_sizes.tolist() == [3] * devices


# --- fleets that split a device's examples only when it runs ------------------------------------------------------------


def listed(parts):
    return [part.tolist() for part in parts]


@pytest.mark.parametrize("method", ["stratified", "random"])
@pytest.mark.parametrize("fractions", [(0.2, 0.2), (0.0, 0.3), (0.45, 0.45)])
def test_deferred_split_equals_the_split_in_advance(method, fractions):
    """Devices 0 to 3 of both fleets have the same examples."""
    sizes = np.array([3, 4, 30, 11, *[3] * (MANY - 4)])
    owners = np.repeat(np.arange(MANY), sizes)
    dataset = replace(make(len(owners), 4), users=owners)

    def first(dataset, devices, seed):
        return [np.flatnonzero(owners == device) for device in range(devices)]

    of, validation, test = partial(federate, dataset, method=method), *fractions
    large = of(by_user, None, 7, validation=validation, test=test)
    small = of(first, 4, 7, validation=validation, test=test)
    assert large.deferred
    assert not small.deferred
    for device in range(4):
        assert listed(large.parts(device)) == listed(small.parts(device))
    np.testing.assert_array_equal(np.diff(large.offsets), [[len(part) for part in large.parts(d)] for d in range(MANY)])


def test_large_fleet_with_a_too_small_device_is_refused():
    sizes = [3] * (MANY - 1) + [2]
    dataset = replace(make(sum(sizes)), users=np.repeat(np.arange(MANY), sizes))
    with pytest.raises(
        DataError, match=rf"device {MANY - 1} \(user {MANY - 1}\): expected at least 3 examples .*, found 2"
    ):
        federate(dataset, by_user, None, 0)


def test_drift_does_not_change_a_deferred_split():
    data = federate(make(20 * MANY), iid, MANY, 0)
    changed = label_permutation(data, 1, groups=3)
    assert not np.array_equal(changed.y, data.y)
    assert [listed(changed.parts(d)) for d in range(50)] == [listed(data.parts(d)) for d in range(50)]


def test_standardized_fleet_is_split_in_advance():
    data = federate(replace(make(3 * MANY), standardize=True), iid, MANY, 0)
    assert data.deferred is None
    assert data.x[data.train(5)].tolist() == [[0.0]]  # one training example: centered


def ragged(dataset, devices, seed):
    return [[[0], [1, 2]]] * devices


def odd(dataset, devices, seed):
    return 1 // 0


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (
            dirichlet,
            r"^partition: dirichlet failed with TypeError: .* missing .* argument: 'alpha'.*; correct it$",
        ),
        (
            partial(pathological, classes=2),
            r"^partition: pathological classes=2 failed with TypeError: .* unexpected keyword argument 'classes'.*; correct",
        ),
        ("iid", r"^partition: str failed with TypeError: 'str' object is not callable; correct it$"),
        (ragged, r"^partition: ragged failed with ValueError: .*; correct it$"),
        (odd, r"^partition: odd failed with ZeroDivisionError: .* \(.*test_federated.py:\d+\); correct it$"),
    ],
)
def test_failing_partition_is_named_in_one_line(partition, message):
    with pytest.raises(ConfigurationError, match=message):
        federate(make(), partition, devices=5, seed=0)
