import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odt_sim.data.devices.split import split, split_by_block
from odt_sim.errors import ConfigurationError, DataError
from odt_sim.settings import Split


@settings(deadline=None, max_examples=100)
@given(st.integers(3, 200), st.floats(0.01, 0.49), st.floats(0.01, 0.49), st.integers(0, 2**31), st.integers(0, 10**6))
def test_parts_are_disjoint_complete_and_never_empty(examples, validation, test, seed, device):
    indices = np.arange(examples) * 7 + 3
    labels = np.arange(indices[-1] + 1) % 5
    parts = split(indices, labels, seed, device, validation=validation, test=test)
    assert np.array_equal(np.sort(np.concatenate(parts)), indices)
    assert min(map(len, parts)) >= 1
    assert all(np.array_equal(part, np.sort(part)) for part in parts)


def test_sizes_follow_the_fractions():
    assert [len(part) for part in split(np.arange(100), None, 0, 0)] == [60, 20, 20]
    assert [len(part) for part in split(np.arange(100), None, 0, 0, validation=0.1, test=0.25)] == [65, 10, 25]
    assert [len(part) for part in split(np.arange(3), None, 0, 0, validation=0.01, test=0.01)] == [1, 1, 1]
    assert [len(part) for part in split(np.arange(4), None, 0, 0, validation=0.49, test=0.49)] == [1, 1, 2]
    assert [len(part) for part in split(np.arange(10), None, 0, 0, validation=0, test=0.2)] == [8, 0, 2]


def test_parts_have_the_mix_of_labels():
    labels = np.repeat([0, 1, 2], [50, 100, 50])
    for seed in range(20):
        for part, expected in zip(
            split(np.arange(200), labels, seed, 4), ([30, 60, 30], [10, 20, 10], [10, 20, 10]), strict=True
        ):
            assert np.abs(np.bincount(labels[part], minlength=3) - expected).max() <= 2


def test_each_example_is_equally_likely_to_be_in_a_part():
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2])
    times = np.zeros((3, 10))
    for device in range(3000):
        for part, indices in enumerate(split(np.arange(10), labels, 0, device)):
            times[part, indices] += 1
    expected = np.array([[0.6], [0.2], [0.2]])
    assert np.abs(times / 3000 - expected).max() < 0.04  # 4.5 standard deviations or more


def test_split_depends_on_seed_and_device():
    def parts(seed, device):
        return [part.tolist() for part in split(np.arange(50), None, seed, device)]

    assert parts(1, 2) == parts(1, 2)
    assert parts(1, 2) != parts(1, 3)
    assert parts(1, 2) != parts(2, 2)


@pytest.mark.parametrize("examples", [0, 1, 2])
def test_too_few_examples_are_refused(examples):
    with pytest.raises(DataError, match=f"device 7: expected at least 3 examples .*, found {examples};"):
        split(np.arange(examples), None, 0, 7)


@pytest.mark.parametrize(("validation", "test"), [(0.2, 0), (0, 1), (0.5, 0.5), (-0.1, 0.2), (float("nan"), 0.2)])
def test_fractions_out_of_range_are_refused(validation, test):
    with pytest.raises(ConfigurationError, match=r"^split\S*: expected "):
        Split(validation=validation, test=test)


def test_blocks_are_in_order_with_gaps():
    parts = split_by_block(np.arange(10, 24), None, 0, gap=1)  # 14 examples, 12 of them used
    assert [part.tolist() for part in parts] == [list(range(10, 18)), [19, 20], [22, 23]]
    parts = split_by_block(np.arange(10), None, 0, validation=0.1, test=0.3, gap=0)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4, 5], [6], [7, 8, 9]]
    parts = split_by_block(np.arange(10), None, 0, validation=0, test=0.3, gap=0)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4, 5, 6], [], [7, 8, 9]]


def test_gap_counts_the_borders_that_exist():
    """Without validation there is one border: of 12 examples one is lost, and 3 are test examples."""
    parts = split_by_block(np.arange(12), None, 0, validation=0, test=0.3, gap=1)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4, 5, 6, 7], [], [9, 10, 11]]
    parts = split_by_block(np.arange(5), None, 0, validation=0, test=0.3, gap=2)
    assert [part.tolist() for part in parts] == [[0, 1], [], [4]]
    with pytest.raises(DataError, match="no sequence of at least 5 examples"):
        split_by_block(np.arange(4), None, 0, validation=0, test=0.3, gap=2)


def test_sequences_are_split_alone_and_short_ones_train():
    sequences = np.array([7, 7, 7, 7, 7, 3, 3, 3, 3, 9, 9, 9, 9, 9])
    parts = split_by_block(np.arange(14), sequences, 0, gap=1)
    assert [part.tolist() for part in parts] == [[0, 5, 6, 7, 8, 9], [2, 11], [4, 13]]


def test_times_order_the_examples_of_a_sequence():
    """Rows of a table that is not sorted by time: test examples come last in each sequence."""
    sequences = np.array([0, 1, 0, 1, 0, 1])
    times = np.array([9.0, 1, 1, 2, 5, 3])
    parts = split_by_block(np.arange(6), sequences, 0, gap=0, times=times)
    assert [part.tolist() for part in parts] == [[1, 2], [3, 4], [0, 5]]


@given(st.lists(st.integers(3, 40), min_size=1, max_size=5), st.integers(0, 3))
def test_blocks_are_disjoint_and_apart(lengths, gap):
    sequences = np.repeat(np.arange(len(lengths)), lengths)
    if max(lengths) < 3 + 2 * gap:
        with pytest.raises(DataError, match=f"device 4: has no sequence of at least {3 + 2 * gap} examples"):
            split_by_block(np.arange(len(sequences)), sequences, 4, gap=gap)
        return
    parts = split_by_block(np.arange(len(sequences)), sequences, 4, gap=gap)
    assert min(map(len, parts)) >= 1
    for one in range(len(parts)):
        for other in parts[one + 1 :]:
            for sequence in range(len(lengths)):
                before, after = (part[sequences[part] == sequence] for part in (parts[one], other))
                assert not len(after) or before.max() + gap < after.min()
