from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.partition import by_user, dirichlet, iid, pathological, quantity_skew
from odt_sim.errors import ConfigurationError, DataError

SEEDS = st.integers(0, 2**31)


def labelled(labels, classes=None):
    labels = np.asarray(labels, np.int32)
    return Dataset("d", np.zeros((len(labels), 1), np.float32), labels, classes=classes or int(labels.max()) + 1)


def balanced(examples, classes):
    return labelled(np.arange(examples) % classes, classes)


def assert_all_used_once(parts, examples):
    assert all(part.dtype == np.int64 for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(examples))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 200), st.integers(1, 40), SEEDS)
def test_iid_gives_equal_numbers(examples, devices, seed):
    if examples < devices:
        with pytest.raises(
            DataError, match=f"expected at least one example for each of {devices} devices, found {examples}"
        ):
            iid(balanced(examples, 3), devices, seed)
        return
    parts = iid(balanced(examples, 3), devices, seed)
    assert_all_used_once(parts, examples)
    assert {len(part) for part in parts} <= {examples // devices, -(-examples // devices)}


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=300),
    st.integers(1, 12),
    st.floats(1e-3, 1e3),
    st.integers(0, 8),
    SEEDS,
)
def test_dirichlet_respects_min_examples_or_is_refused(labels, devices, alpha, min_examples, seed):
    dataset = labelled(labels)
    for partition in (dirichlet, quantity_skew):
        spread = partial(partition, dataset, devices, seed, alpha=alpha, min_examples=min_examples)
        if len(labels) < devices * min_examples:
            with pytest.raises(DataError, match="fewer devices, a larger alpha or a smaller min_examples"):
                spread()
            continue
        try:
            parts = spread()
        except DataError:
            assert devices > 1
            assert min_examples > 0  # nothing else makes a draw fail
        else:
            assert len(parts) == devices
            assert min(map(len, parts)) >= min_examples
            assert_all_used_once(parts, len(labels))


def test_dirichlet_succeeds_for_thousands_of_devices():
    parts = dirichlet(balanced(60_000, 10), 3000, 0, alpha=0.1, min_examples=10)
    assert min(map(len, parts)) >= 10


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0, 10.0])
def test_dirichlet_shares_have_the_variance_of_the_distribution(alpha):
    """A share p of Dirichlet(alpha * 1) over J devices has variance (1/J)(1 - 1/J) / (J alpha + 1)."""
    devices, classes, per_class = 20, 400, 1000
    dataset = labelled(np.repeat(np.arange(classes), per_class))
    parts = dirichlet(dataset, devices, 0, alpha=alpha, min_examples=0)
    shares = np.stack([np.bincount(dataset.y[part], minlength=classes) for part in parts]) / per_class
    expected = (1 / devices) * (1 - 1 / devices) / (devices * alpha + 1)
    assert shares.var() == pytest.approx(expected, rel=0.1)


def test_alpha_controls_the_label_skew():
    dataset = balanced(10_000, 10)

    def largest_share(alpha):
        parts = dirichlet(dataset, 20, 0, alpha=alpha)
        return np.mean([np.bincount(dataset.y[part], minlength=10).max() / len(part) for part in parts])

    assert largest_share(0.05) > 0.6
    assert largest_share(1000) < 0.13


def test_tiny_alpha_gives_each_class_to_one_device():
    parts = dirichlet(balanced(1000, 10), 4, 3, alpha=1e-6, min_examples=0)
    holders = np.array([[np.any(part % 10 == label) for part in parts] for label in range(10)])
    assert holders.sum(axis=1).tolist() == [1] * 10


def test_quantity_skew_changes_sizes_only():
    dataset = balanced(50_000, 5)
    parts = quantity_skew(dataset, 10, 0, alpha=0.5)
    sizes = [len(part) for part in parts]
    assert max(sizes) > 4 * min(sizes)
    largest = parts[int(np.argmax(sizes))]
    np.testing.assert_allclose(np.bincount(dataset.y[largest]) / len(largest), 0.2, atol=0.02)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=300), st.integers(1, 40), st.integers(1, 5), SEEDS)
def test_pathological_gives_exact_number_of_classes(labels, devices, per_device, seed):
    dataset = labelled(labels)
    sizes = np.unique(labels, return_counts=True)[1]
    possible = per_device <= len(sizes) <= devices * per_device <= np.minimum(sizes, devices).sum()
    if not possible:
        with pytest.raises(DataError, match="classes"):
            pathological(dataset, devices, seed, classes_per_device=per_device)
        return
    parts = pathological(dataset, devices, seed, classes_per_device=per_device)
    assert [len(np.unique(dataset.y[part])) for part in parts] == [per_device] * devices
    assert_all_used_once(parts, len(labels))


def test_pathological_shards_are_of_equal_size():
    dataset = labelled([0] * 600 + [1] * 300 + [2] * 300)
    parts = pathological(dataset, 6, 1, classes_per_device=2)
    assert [len(part) for part in parts] == [200] * 6
    assert all(np.sum(dataset.y[part] == 0) == 100 for part in parts)


def test_pathological_mixes_the_pairs_of_classes():
    dataset = balanced(4000, 10)
    pairs = {tuple(np.unique(dataset.y[part])) for part in pathological(dataset, 100, 0, classes_per_device=2)}
    assert len(pairs) > 25  # of 45


def test_by_user_makes_each_user_a_device():
    dataset = Dataset("d", np.zeros((5, 1)), np.zeros(5), users=np.array(["bo", "al", "bo", "cy", "al"]))
    assert [part.tolist() for part in by_user(dataset, None, 0)] == [[1, 4], [0, 2], [3]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-3, 9), min_size=1, max_size=60), st.integers(1, 13), SEEDS)
def test_by_user_chooses_whole_users(users, devices, seed):
    dataset = Dataset("d", np.zeros((len(users), 1)), np.zeros(len(users)), users=np.array(users))
    if devices > len(set(users)):
        with pytest.raises(DataError, match=f"expected at most {len(set(users))} devices, .*, found {devices}"):
            by_user(dataset, devices, seed)
        return
    parts = by_user(dataset, devices, seed)
    ids = [set(np.array(users)[part]) for part in parts]
    assert all(len(one) == 1 for one in ids)
    chosen = [one.pop() for one in ids]
    assert chosen == sorted(set(chosen))
    assert [len(part) for part in parts] == [users.count(user) for user in chosen]


ALL = {
    "iid": iid,
    "dirichlet": partial(dirichlet, alpha=0.5),
    "quantity_skew": partial(quantity_skew, alpha=0.5),
    "pathological": partial(pathological, classes_per_device=2),
    "by_user": by_user,
}


@pytest.mark.parametrize("name", ALL)
def test_partition_depends_on_the_seed_only(name):
    dataset = balanced(600, 6)
    dataset = Dataset("d", dataset.x, dataset.y, np.arange(600) // 20, 6)

    def parts(seed):
        return [part.tolist() for part in ALL[name](dataset, 8, seed)]

    first = parts(1)
    np.random.default_rng(5).random()
    assert parts(1) == first
    assert parts(2) != first


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("devices", [0, -1])
def test_no_device_is_refused(name, devices):
    dataset = Dataset("d", np.zeros((4, 1)), np.array([0, 1, 0, 1], np.int32), np.arange(4), 2)
    with pytest.raises(ConfigurationError, match=rf"fleet\.devices: expected at least 1, found {devices}"):
        ALL[name](dataset, devices, 0)


def test_number_of_devices_is_required_except_by_user():
    with pytest.raises(ConfigurationError, match=r"fleet\.devices: expected at least 1, found null"):
        iid(balanced(10, 2), None, 0)


@pytest.mark.parametrize("alpha", [0, -1, np.nan, np.inf])
def test_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(ConfigurationError, match=r"partition\.alpha: expected a number above 0, found"):
        dirichlet(balanced(100, 2), 2, 0, alpha=alpha)


def test_label_skew_refuses_regression():
    dataset = Dataset("school", np.zeros((9, 1)), np.zeros(9, np.float32))
    for partition in (ALL["dirichlet"], ALL["pathological"]):
        with pytest.raises(DataError, match="data school: expected one class label for each example"):
            partition(dataset, 2, 0)
    assert_all_used_once(quantity_skew(dataset, 2, 0, alpha=1, min_examples=1), 9)


def test_by_user_without_users_is_refused():
    with pytest.raises(DataError, match=r"data d: has no user ids; set their column or array \(data\.users\), or"):
        by_user(balanced(10, 2), 2, 0)
