"""Versions against a plain dictionary."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.persistence.versions import Version, Versions

DEVICES = 12
ROUNDS = st.lists(st.dictionaries(st.integers(0, DEVICES - 1), st.integers(0, DEVICES - 1)), max_size=30)
"""For each round the devices that wrote a state, each with its file."""


@given(ROUNDS)
def test_versions_are_those_of_the_last_writes(rounds):
    versions, expected = Versions(), {}
    for round, files in enumerate(rounds, 1):
        before = versions, dict(expected)
        versions = versions.after(round, files)
        expected |= {device: Version(round, file) for device, file in files.items()}
        assert versions.of(range(DEVICES)) == expected
        assert before[0].of(range(DEVICES)) == before[1]  # the round before is as it was
        assert versions.written(round) == {device: Version(round, file) for device, file in files.items()}
    counts = {version: list(expected.values()).count(version) for version in expected.values()}
    assert versions.files() == counts


@given(ROUNDS)
def test_segments_halve_and_each_lists_a_device_once(rounds):
    versions = Versions()
    for round, files in enumerate(rounds, 1):
        versions = versions.after(round, files)
        sizes = [len(segment.entries) for segment in versions.segments]
        assert all(later * 2 <= earlier for earlier, later in pairwise(sizes))
        for segment in versions.segments:
            assert (np.diff(segment.entries[:, 0]) > 0).all()
            assert segment.round <= round


def test_only_those_asked_for_are_found():
    versions = Versions().after(1, {2: 2, 5: 2}).after(2, {5: 5})
    assert versions.of([5, 3]) == {5: Version(2, 5)}
    assert versions.of([]) == {}
    assert versions.written(1) == {}
    assert versions.after(3, {}) is versions


def test_what_rounds_add_does_not_grow_with_the_fleet():
    """A thousand rounds of 10 of 1e6 devices: an entry is copied about once for each of the few segments."""
    random, versions, copied = np.random.default_rng(0), Versions(), 0
    for round in range(1, 1001):
        devices = random.integers(0, 10**6, 10).tolist()
        versions = versions.after(round, dict.fromkeys(devices, devices[0]))
        copied += len(versions.segments[-1].entries)
    assert len(versions.segments) <= 10
    assert copied / 1000 < 10 * 10
