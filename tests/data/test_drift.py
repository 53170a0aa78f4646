from dataclasses import replace

import numpy as np
import pytest

from odt_sim.data import Dataset, federate, iid
from odt_sim.data.devices.drift import colour, label_permutation, none, rotation
from odt_sim.errors import ConfigurationError, DataError


@pytest.fixture
def images():
    """Six devices of five 4x4 images with the labels 0..2."""
    x = np.random.default_rng(0).random((30, 4, 4, 1), np.float32)
    return federate(Dataset("d", x, (np.arange(30) % 3).astype(np.int32), classes=3), iid, 6, 0)


def examples(data, device):
    return data.indices[data.offsets[device, 0] : data.offsets[device, 3]]


def test_no_drift_returns_the_data(images):
    assert none(images, 0) is images


def test_right_angles_move_pixels(images):
    before = images.x.copy()
    data = rotation(images, 0, degrees=[0, 90, 180])
    turns = []
    for device in range(6):
        rows = examples(data, device)
        turned = [np.array_equal(data.x[rows], np.rot90(before[rows], k, (1, 2))) for k in range(4)]
        assert sum(turned) == 1
        turns.append(turned.index(True))
    assert sorted(turns) == [0, 0, 1, 1, 2, 2]
    assert np.array_equal(images.x, before)
    assert data.y is images.y
    assert data.spread == f"{images.spread} rotation=[0,90,180]"


def test_other_angles_rotate_counterclockwise():
    """A bar from the center to the right points to the upper right after 45 degrees."""
    x = np.zeros((3, 9, 9, 1), np.float32)
    x[:, 4, 4:] = 1
    turned = rotation(federate(Dataset("bar", x, np.zeros(3, np.float32)), iid, 1, 0), 0, degrees=[45]).x
    assert turned[0, 2, 6, 0] > 0.5
    assert turned[0, 6, 6, 0] == turned[0, 2, 2, 0] == 0


def test_grey_images_become_coloured(images):
    data = colour(images, 0, colours=[[1, 0, 0], [0, 0.5, 1]])
    assert (data.x.shape, data.x.dtype) == ((30, 4, 4, 3), np.float32)
    scales = []
    for device in range(6):
        rows = examples(data, device)
        scale = data.x[rows][0, 0, 0] / images.x[rows][0, 0, 0]
        np.testing.assert_allclose(data.x[rows], images.x[rows] * scale, rtol=1e-6)
        scales.append(tuple(scale.round(3).tolist()))
    assert sorted(scales) == [(0, 0.5, 1)] * 3 + [(1, 0, 0)] * 3


@pytest.mark.parametrize("drift", [rotation, colour])
def test_scales_of_other_images_are_dropped(drift):
    x = np.random.default_rng(0).normal(size=(20, 4, 4, 1)).astype(np.float32)
    data = federate(Dataset("d", x, np.arange(20) % 2, standardize=True), iid, 4, 0)
    assert (list(data.scales), list(drift(data, 0).scales)) == ([""], [])


@pytest.mark.parametrize("one_hot", [False, True])
def test_groups_permute_labels_except_the_first(images, one_hot):
    if one_hot:
        images = replace(images, y=np.eye(3, dtype=np.float32)[images.y])
    data = label_permutation(replace(images, class_names=("a", "b", "c")), 2, groups=3)
    assert data.class_names == ()

    def labels(y):
        return y.argmax(axis=1) if one_hot else y

    found = []
    for device in range(6):
        rows = examples(data, device)
        pairs = set(zip(labels(images.y[rows]).tolist(), labels(data.y[rows]).tolist(), strict=True))
        found.append(tuple(sorted(pairs)))
        assert len({old for old, _ in pairs}) == len({new for _, new in pairs}) == len(pairs)
    assert sum(all(old == new for old, new in pairs) for pairs in found) >= 2
    assert any(old != new for pairs in found for old, new in pairs)
    assert data.y.dtype == images.y.dtype


def test_one_hot_and_integer_labels_are_permuted_alike(images):
    hot = replace(images, y=np.eye(3, dtype=np.float32)[images.y])
    whole, rows = (label_permutation(data, 5, groups=4).y for data in (images, hot))
    assert np.array_equal(rows.argmax(axis=1), whole)


def test_groups_depend_on_the_seed(images):
    def turned(seed):
        return rotation(images, seed).x.tolist()

    assert turned(1) == turned(1)
    assert turned(1) != turned(2)


def test_unsuitable_data_is_refused(images):
    flat = replace(images, x=images.x.reshape(30, 16))
    for drift in (rotation, colour):
        with pytest.raises(DataError, match=r"x is float32 \[30, 16\], expected images"):
            drift(flat, 0)
    with pytest.raises(DataError, match="images are 2 by 8, expected square images"):
        rotation(replace(images, x=images.x.reshape(30, 2, 8, 1)), 0)
    with pytest.raises(DataError, match="images have 4 channels, expected 1 or 3"):
        colour(replace(images, x=images.x.reshape(30, 2, 2, 4)), 0)
    with pytest.raises(DataError, match="expected one class label for each example"):
        label_permutation(replace(images, classes=None), 0)
    with pytest.raises(ConfigurationError, match=r"drift\.colours: expected triples .*, found \[\[2,0,0\]\]"):
        colour(images, 0, colours=[[2, 0, 0]])
    with pytest.raises(ConfigurationError, match="drift: expected at least one group, found none"):
        label_permutation(images, 0, groups=0)
