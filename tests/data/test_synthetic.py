import numpy as np
import pytest

from odt_sim.data.sources.fedprox_synthetic import draw, pfedme_synthetic, synthetic
from odt_sim.errors import ConfigurationError


def test_data_depends_on_the_seed_only():
    one, again, other = synthetic(seed=3), synthetic(seed=3), synthetic(seed=4)
    assert np.array_equal(one.x, again.x)
    assert np.array_equal(one.y, again.y)
    assert len(one.x) != len(other.x) or not np.array_equal(one.x, other.x)


@pytest.mark.slow
def test_shapes_and_sizes():
    dataset = synthetic(0.5, 0.5, users=400)
    assert dataset.name == "synthetic(0.5,0.5) seed=0"
    assert (dataset.x.dtype, dataset.x.shape[1], dataset.y.dtype, dataset.classes) == (np.float32, 60, np.int32, 10)
    sizes = np.bincount(dataset.users)
    assert (len(sizes), sizes.min() >= 50) == (400, True)
    logarithms = np.log(sizes - 49.5)  # int() cut half an example on average
    assert np.median(logarithms) == pytest.approx(4, abs=0.4)  # 3 standard errors
    assert logarithms.std() == pytest.approx(2, abs=0.3)


@pytest.mark.slow
def test_pfedme_users_have_five_times_as_many_examples():
    small, large = synthetic(0.5, 0.5, users=100), pfedme_synthetic()
    assert large.name == "pfedme_synthetic(0.5,0.5) seed=0"
    assert np.bincount(large.users).tolist() == (5 * np.bincount(small.users)).tolist()


def moments(dataset, users):
    """Return the mean of each user's inputs `[users, 60]`, and the variances around it `[60]`."""
    means = np.stack([dataset.x[dataset.users == user].mean(axis=0) for user in range(users)])
    return means, (dataset.x - means[dataset.users]).var(axis=0)


def drawn(alpha, beta, users=200, **more):
    return draw("d", np.full(users, 300), alpha, beta, np.random.default_rng(0), **more)


def test_inputs_have_the_documented_moments():
    for beta in (0.0, 3.0):
        means, variances = moments(drawn(1, beta), 200)
        np.testing.assert_allclose(variances, np.arange(1, 61) ** -1.2, rtol=0.1)
        assert means.var(axis=1).mean() == pytest.approx(1, rel=0.1)  # v_k around B_k
        assert means.mean(axis=1).std() == pytest.approx(np.hypot(beta, 60**-0.5), rel=0.2)  # B_k, and v_k's mean


def test_iid_users_share_one_model():
    dataset = drawn(5, 5, users=50, iid=True)
    means, variances = moments(dataset, 50)
    assert np.abs(means).max() < 5 / np.sqrt(300)
    np.testing.assert_allclose(variances, np.arange(1, 61) ** -1.2, rtol=0.1)
    assert accuracy_on_others(dataset) > 0.6


def test_other_users_do_not_share_a_model():
    """Weights differ even at (0, 0); alpha changes only their means."""
    assert accuracy_on_others(drawn(0, 0, users=50)) < 0.4


def accuracy_on_others(dataset):
    """Return the accuracy of a least-squares classifier of the first 25 users on the others."""
    x, first = np.column_stack([dataset.x, np.ones(len(dataset.x))]), dataset.users < 25
    weights = np.linalg.lstsq(x[first], np.eye(10)[dataset.y[first]], rcond=None)[0]
    return np.mean((x[~first] @ weights).argmax(axis=1) == dataset.y[~first])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": -1}, "data.alpha: expected a number of at least 0, found -1"),
        ({"beta": float("nan")}, "data.beta: expected a number of at least 0, found nan"),
        ({"users": 0}, "data.users: expected a number of at least 1, found 0"),
        ({"seed": -1}, "data.seed: expected a number of at least 0, found -1"),
    ],
)
def test_settings_out_of_range(settings, message):
    for source in (synthetic, pfedme_synthetic):
        with pytest.raises(ConfigurationError, match=message):
            source(**settings)
