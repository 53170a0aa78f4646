"""Epsilon against the library's accountant, the drawn noise, and the error of a missing package."""

import sys
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

from odt_sim.aggregators import DifferentialPrivacy
from odt_sim.errors import ConfigurationError
from odt_sim.strategies.base import Updates

REPLACED = dp_accounting.NeighboringRelation.REPLACE_ONE


def epsilon_of(event: Any, rounds: int, delta: float) -> float:
    accountant = rdp.RdpAccountant(neighboring_relation=REPLACED)
    for _ in range(rounds):
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


@pytest.mark.slow
def test_epsilon_of_sampling_without_replacement() -> None:
    """Replacing a user moves the sum by 2 max_norm: half of the noise multiplier counts."""
    found = DifferentialPrivacy(3.0, noise_multiplier=2.0, delta=1e-6).privacy(rounds=4, cohort=10, participants=1000)
    event = dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, dp_accounting.GaussianDpEvent(1.0))
    assert found["epsilon"] == pytest.approx(epsilon_of(event, 4, 1e-6), rel=1e-9)
    assert (found["delta"], found["neighbours"]) == (1e-6, "one user replaced")


@pytest.mark.parametrize("cohort", [16, 15])
def test_epsilon_of_nearly_full_participation_is_plain_gaussian(cohort: int) -> None:
    """The plain bound holds for a sample too, and is smaller for a large one."""
    found = DifferentialPrivacy(noise_multiplier=8.0).privacy(40, cohort, 16)["epsilon"]
    assert found == pytest.approx(epsilon_of(dp_accounting.GaussianDpEvent(4.0), 40, 1e-5), rel=1e-9)
    analytic = dp_accounting.get_epsilon_gaussian(4.0 / 40**0.5, 1e-5)  # 40 rounds are one of sqrt(40) times less noise
    assert analytic <= found <= 1.1 * analytic


def test_epsilon_falls_with_noise_and_grows_with_rounds() -> None:
    def epsilon(noise: float, rounds: int) -> float:
        return float(DifferentialPrivacy(noise_multiplier=noise).privacy(rounds, 10, 1000)["epsilon"])

    assert epsilon(4, 5) < epsilon(2, 5) < epsilon(2, 50)
    assert epsilon(0, 1) == float("inf")


def test_noise_standard_deviation() -> None:
    """Standard deviation z C / cohort on each number; the sum of 3 of 4 devices is divided by 4."""
    updates = Updates({"v": np.full((1000, 200), 8, np.float32)}, 70.0, 3, 9)
    private = DifferentialPrivacy(max_norm=2.0, noise_multiplier=1.5)
    found = private.combine(updates, 4, np.random.default_rng(1))
    noise = found.mean["v"].astype(np.float64) - 6
    assert noise.std() == pytest.approx(1.5 * 2 / 4, rel=0.01)
    assert abs(noise.mean()) < 0.01
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 0.1
    assert (found.weight, found.count) == (4.0, 4)  # but not which users contributed


def test_tensors_have_independent_noise() -> None:
    updates = Updates({"a": np.zeros(5, np.float32), "b": np.zeros(5, np.float32)}, 1.0, 2, 9)
    private = DifferentialPrivacy()
    one, again = (private.combine(updates, 2, np.random.default_rng(3)).mean for _ in range(2))
    other = private.combine(updates, 2, np.random.default_rng(4)).mean
    assert not np.isin(one["a"], one["b"]).any()
    np.testing.assert_array_equal(one["a"], again["a"])
    assert not np.isin(one["a"], other["a"]).any()


def test_without_noise_and_clipping_equals_unweighted_mean() -> None:
    updates = Updates({"v": np.array([1.5, -2.0], np.float32)}, 30.0, 5, 9)
    found = DifferentialPrivacy(1e9, 0.0).combine(updates, 5, np.random.default_rng(0)).mean
    np.testing.assert_array_equal(found["v"], updates.mean["v"])
    assert DifferentialPrivacy.unweighted


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise_multiplier": -1}, "noise_multiplier: expected a number of at least 0, found -1"),
        ({"delta": 0}, "delta: expected a number above 0 and below 1, found 0"),
        ({"max_norm": 0}, "max_norm: expected a number above 0, found 0"),
    ],
)
def test_numbers_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"aggregator.{message}"):
        DifferentialPrivacy(**settings)


def test_missing_extra_prints_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)  # makes the import fail
    with pytest.raises(ConfigurationError) as raised:
        DifferentialPrivacy()
    assert str(raised.value).startswith("aggregator=differential_privacy: cannot import dp_accounting (")
    assert str(raised.value).endswith("; run: pip install 'odt_sim[privacy]'")
