"""Simulated sweeps have the stated error rates: 3 to 7 % false positives, 93 to 97 % coverage."""

import itertools

import numpy as np
import pytest
from slow import slow_except

from odt_sim.report.significance import FEWEST, student, units

EFFECT = 0.5  # standard deviations; the mean that intervals have to cover


def person_by_seed(rng, people, seeds, correlation):
    """Return `[seeds, people]` normal differences, correlated over the seeds of a person."""
    own = rng.normal(size=people) * correlation**0.5
    return own + rng.normal(size=(seeds, people)) * (1 - correlation) ** 0.5


def coarse(rng, people, seeds, deterministic):
    """Return differences of two accuracies on 10 test examples each, which have many ties.

    Deterministic runs give the same answers under every seed.
    """
    skill = np.clip(0.7 + 0.1 * rng.normal(size=(2, people)), 0, 1)
    shown = rng.random((1 if deterministic else seeds, 2, people, 10))
    right = np.broadcast_to((shown < skill[:, :, np.newaxis]).mean(axis=-1), (seeds, 2, people))
    return right[:, 0] - right[:, 1]


def check(draw, people, seeds, *, returning, sweeps):
    """Count how often a sweep without effect has a p below 0.05, and how often the interval covers an effect."""
    rng = np.random.default_rng([people, seeds, int(returning)])
    false_positives = covered = 0
    for _ in range(sweeps):
        unit, values = units([dict(enumerate(of_seed)) for of_seed in draw(rng)], returning)
        lower, upper = student(values + EFFECT, FEWEST[unit]).interval
        false_positives += student(values, FEWEST[unit]).p < 0.05
        covered += lower <= EFFECT <= upper
    assert 0.03 <= false_positives / sweeps <= 0.07
    assert 0.93 <= covered / sweeps <= 0.97


def test_seeds_with_other_devices_hold_the_error_rates():
    def shifted(rng):
        """The devices of a seed share the luck of its models."""
        return 0.5 * rng.normal(size=(3, 1)) + rng.normal(size=(3, 20))

    check(shifted, 20, 3, returning=False, sweeps=2000)


def test_pooled_pairs_would_not():
    """The check can fail: devices of all seeds as new pairs give several times the promised rate."""
    rng = np.random.default_rng(0)
    drawn = (person_by_seed(rng, 20, 5, 0.9).ravel() for _ in range(500))
    assert np.mean([student(values, 6).p < 0.05 for values in drawn]) > 0.25


GRID = [(0.0, 1, 20), (0.0, 1, 30), *itertools.product([0.0, 0.5, 0.9, 1.0], [3, 5], [20, 30])]
"""Correlations, seeds and people; with one seed there is nothing to correlate."""


@pytest.mark.parametrize(("correlation", "seeds", "people"), slow_except([(0.0, 3, 20), (0.9, 3, 20)], GRID))
def test_whole_grid_holds_the_error_rates(correlation, seeds, people):
    check(lambda rng: person_by_seed(rng, people, seeds, correlation), people, seeds, returning=True, sweeps=2000)
    if seeds > 1:  # else they are devices, as above
        check(
            lambda rng: person_by_seed(rng, seeds, people, correlation).T, people, seeds, returning=False, sweeps=2000
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "people", "deterministic"),
    [(1, 20, False), (1, 30, False), *itertools.product([3, 5], [20, 30], [False, True])],
)
def test_coarse_accuracies_hold_the_error_rates(seeds, people, deterministic):
    check(lambda rng: coarse(rng, people, seeds, deterministic), people, seeds, returning=True, sweeps=2000)
