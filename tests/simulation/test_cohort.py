import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.simulation.run import cohort
from odt_sim.simulation.run.cohort import (
    LARGEST_BLOCK,
    blocks,
    choose_cohort,
    choose_evaluated,
    choose_stragglers,
    choose_unseen,
    holds,
)

SEEDS = st.integers(0, 2**63 - 1)


@pytest.fixture(autouse=True)
def large_blocks():
    """Restore the shipped number of blocks."""


@given(seed=SEEDS, round=st.integers(1, 2**40))
def test_draws_of_a_round_have_the_bits_of_numpy(seed, round):
    ids = np.arange(3, 15)
    drawn, slow = (np.random.default_rng([seed, round, *purpose]) for purpose in (b"cohort", b"stragglers"))
    assert choose_cohort(ids, 5, seed, round).tolist() == sorted(drawn.choice(ids, 5, replace=False))
    assert choose_stragglers(ids.tolist(), 0.25, seed, round) == set(slow.choice(ids, 3, replace=False))


@given(ids=st.lists(st.integers(0, 10**6), unique=True, max_size=2000).map(sorted))
def test_blocks_partition_the_cohort_in_order(ids):
    cut = blocks(ids)
    assert [device for block in cut for device in block] == ids
    assert all(1 <= len(block) <= LARGEST_BLOCK for block in cut)


@pytest.mark.parametrize(
    ("devices", "size", "count"),
    [(0, 0, 0), (1, 1, 1), (16, 1, 16), (17, 2, 9), (36, 3, 12), (512, 32, 16), (513, 32, 17), (10_000, 32, 313)],
)
def test_size_of_blocks(devices, size, count):
    cut = blocks(range(devices))
    assert len(cut) == count
    assert max(map(len, cut), default=0) == size


@given(devices=st.integers(1, 300), seed=SEEDS, data=st.data())
def test_unseen_devices_never_train(devices, seed, data):
    count = data.draw(st.integers(0, devices - 1))
    unseen = choose_unseen(devices, count, seed)
    assert len(set(unseen.tolist())) == count
    assert unseen.tolist() == sorted(unseen.tolist())
    seen = np.setdiff1d(np.arange(devices), unseen)
    size = data.draw(st.one_of(st.none(), st.integers(1, len(seen))))
    round = data.draw(st.integers(1, 1000))
    chosen = choose_cohort(seen, size, seed, round)
    assert not set(chosen.tolist()) & set(unseen.tolist())
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert len(chosen) == (len(seen) if size is None else size)


def test_cohort_depends_on_seed_and_round_only():
    seen = np.arange(100)
    drawn = {(seed, round): choose_cohort(seen, 10, seed, round).tolist() for seed in (0, 1) for round in (1, 2, 3)}
    assert len({tuple(ids) for ids in drawn.values()}) == len(drawn)
    np.random.default_rng(0).random(5)  # the global generator has no influence
    for (seed, round), ids in reversed(drawn.items()):
        assert choose_cohort(seen, 10, seed, round).tolist() == ids


@pytest.mark.parametrize(
    ("fraction", "count"), [(0, 0), (0.04, 0), (0.05, 1), (0.29, 3), (0.5, 5), (0.9, 9), (0.95, 9), (0.999, 9)]
)
def test_fraction_of_stragglers_leaves_one_device_in_time(fraction, count):
    cohort = range(20, 40, 2)
    slow = choose_stragglers(cohort, fraction, 0, 1)
    assert len(slow) == count
    assert slow <= set(cohort)
    assert choose_stragglers([5], fraction, 0, 1) == set()


def test_stragglers_depend_on_seed_round_and_cohort():
    drawn = {(seed, round): choose_stragglers(range(100), 0.5, seed, round) for seed in (0, 1) for round in (1, 2)}
    assert len(set(map(frozenset, drawn.values()))) == len(drawn)
    assert choose_stragglers(range(100), 0.5, 1, 2) == drawn[1, 2]


def test_every_device_is_drawn_equally_often():
    counts = np.zeros(20)
    for round in range(1, 1001):
        counts[choose_cohort(np.arange(20), 5, 0, round)] += 1
    assert abs(counts - 250).max() < 5 * np.sqrt(1000 * 0.25 * 0.75)  # five standard deviations


@given(st.integers(1, 200), st.integers(0, 199), st.integers(1, 200), SEEDS)
def test_seen_and_unseen_devices_are_evaluated_in_proportion(devices, unseen, count, seed):
    left_out = choose_unseen(devices, min(unseen, devices - 1), seed)
    count = min(max(count, 1 + bool(len(left_out))), devices)
    seen = np.setdiff1d(np.arange(devices), left_out)
    found = choose_evaluated(seen, left_out, count, seed)
    assert found.tolist() == sorted(set(found.tolist()))
    assert (len(found), found.dtype) == (count, np.int64)
    of_unseen = sum(holds(left_out, device) for device in found.tolist())
    assert of_unseen == len(set(found.tolist()) & set(left_out.tolist()))
    assert len(found) - of_unseen >= 1
    if len(left_out):
        assert of_unseen >= 1
        assert abs(of_unseen - count * len(left_out) / devices) <= 1


def test_all_devices_are_evaluated_by_default():
    assert choose_evaluated(np.array([0, 2]), np.array([1]), None, 0).tolist() == [0, 1, 2]
    drawn = {tuple(choose_evaluated(np.arange(100), np.zeros(0, np.int64), 5, seed).tolist()) for seed in range(5)}
    assert len(drawn) == 5


def test_default_number_of_blocks(monkeypatch):
    monkeypatch.setattr(cohort, "FEWEST_BLOCKS", 2)
    assert blocks(range(7)) == [(0, 1, 2, 3), (4, 5, 6)]
