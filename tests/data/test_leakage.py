import re
import warnings

import numpy as np
import pytest

from odt_sim.data import Dataset, FederatedData, LeakageWarning, by_user, check_leakage, federate, find_leakage
from odt_sim.data.checks.leakage import MOST

LENGTH, STEP = 32, 16


def fleet(x, y, *devices):
    """Return devices of given train, validation and test indices."""
    sizes = np.cumsum([len(part) for parts in devices for part in parts]).reshape(-1, 3)
    offsets = np.concatenate([sizes[:, 2:] - [[sum(map(len, parts))] for parts in devices], sizes], axis=1)
    indices = np.concatenate([part for parts in devices for part in parts]).astype(np.int64)
    return FederatedData("d", np.asarray(x), np.asarray(y), None, indices, offsets)


def windows(recording, step=STEP):
    return np.stack([recording[start : start + LENGTH] for start in range(0, len(recording) - LENGTH + 1, step)])


@pytest.fixture
def recording():
    """`[160, 3]`: nine windows that overlap by half."""
    return np.random.default_rng(0).normal(size=(160, 3)).astype(np.float32)


def counts(data):
    found = find_leakage(data)
    return found.equal, found.overlapping, found.devices, found.evaluated


def test_equal_examples_count_within_a_device():
    x = np.array([[1], [2], [1], [2], [3], [1]], np.float32)
    y = np.zeros(6, np.float32)
    assert counts(fleet(x, y, ([0, 1], [2], [3]), ([4], [5], []))) == (2, 0, 1, 3)
    assert counts(fleet(x, y, ([4], [0], [2, 5]))) == (2, 0, 1, 3)  # test examples must not occur in validation


def test_equal_input_with_another_target_does_not_leak():
    x, y = np.ones((3, 2), np.float32), np.array([0, 1, 2], np.int32)
    assert counts(fleet(x, y, ([0], [1], [2]))) == (0, 0, 0, 2)


def test_windows_that_overlap_by_half_count(recording):
    x, y = windows(recording), np.zeros(9, np.int32)
    assert counts(fleet(x, y, ([0, 1, 2], [3, 4], [5, 6, 7, 8]))) == (0, 2, 1, 6)
    assert counts(fleet(x, y, ([0, 1, 2], [4], [6, 7, 8]))) == (0, 0, 0, 4)
    assert counts(fleet(x, y, ([0, 2, 4, 6, 8], [1, 3], [5, 7]))) == (0, 4, 1, 4)


def test_overlap_ignores_direction_and_axis_order(recording):
    x, y = windows(recording), np.zeros(9, np.int32)
    assert counts(fleet(x, y, ([3], [2], [8]))) == (0, 1, 1, 2)
    assert counts(fleet(x.swapaxes(1, 2).copy(), y, ([0, 1], [2, 3], [4]))) == (0, 2, 1, 3)


def test_overlap_of_less_than_half_does_not_count(recording):
    for step, expected in ((1, 1), (10, 1), (16, 1), (17, 0)):
        x = windows(recording, step)[:2]
        assert find_leakage(fleet(x, np.zeros(2), ([0], [], [1]))).overlapping == expected, step


def test_texts_overlap_but_padding_does_not():
    text = np.random.default_rng(0).integers(1, 80, 100).astype(np.int32)
    tokens = np.stack([text[:LENGTH], text[3 : LENGTH + 3], text[60 : 60 + LENGTH]])
    assert counts(fleet(tokens, np.zeros(3), ([0], [2], [1]))) == (0, 1, 1, 2)
    padded = np.zeros((3, LENGTH), np.int32)
    padded[:, -5:] = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [9, 2, 3, 4, 7]]
    assert counts(fleet(padded, np.zeros(3), ([0], [1], [2]))) == (0, 0, 0, 2)


def test_large_fleet_is_sampled():
    """Every example equals a training example of its device."""
    many = MOST + 1000
    devices = np.arange(3 * many).reshape(many, 3)
    offsets = 3 * np.arange(many)[:, np.newaxis] + np.arange(4)
    x = np.repeat(np.arange(many, dtype=np.float32), 3)[:, np.newaxis]
    found = find_leakage(FederatedData("d", x, np.zeros(3 * many), None, devices.ravel(), offsets))
    assert (found.equal, found.devices, found.evaluated, found.sampled) == (2 * MOST, MOST, 2 * MOST, MOST)
    assert f"validation and test examples of {MOST} sampled devices, {2 * MOST} are equal" in found.message


def test_features_and_images_are_not_windows():
    features = np.tile(np.arange(64, dtype=np.float32), (2, 1))
    features[1, -1] = 0
    assert counts(fleet(features, np.zeros(2), ([0], [], [1]))) == (0, 0, 0, 1)
    assert counts(fleet(features.reshape(2, 16, 4, 1), np.zeros(2), ([0], [], [1]))) == (0, 0, 0, 1)


def test_split_by_block_with_gap_does_not_leak(recording):
    x = np.concatenate([windows(recording), windows(recording[::-1])])
    dataset = Dataset("walks", x, np.zeros(18, np.int32), np.repeat([1, 2], 9), 2)
    assert find_leakage(federate(dataset, by_user, None, 0)).overlapping > 4
    with pytest.warns(LeakageWarning, match="of 8 validation and test examples, 0 are equal to and 4 overlap"):
        found = check_leakage(federate(dataset, by_user, None, 0, method="block", gap=0))
    assert re.search(r"\(on 2 devices\); for windows of a recording, use split\.method=block", str(found.message))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_leakage(federate(dataset, by_user, None, 0, method="block")).message is None
