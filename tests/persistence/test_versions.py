"""Versions behave as a plain dictionary does."""

from hypothesis import given
from hypothesis import strategies as st

from odt_sim.persistence.versions import Version, Versions

DEVICES = 12
ROUNDS = st.lists(st.dictionaries(st.integers(0, DEVICES - 1), st.integers(0, DEVICES - 1)), max_size=30)
"""For each round, the devices that wrote a state, with their files."""


@given(ROUNDS)
def test_versions_are_those_of_the_last_writes(rounds):
    versions, expected = Versions(), {}
    for round, files in enumerate(rounds, 1):
        before, expected_before = versions, dict(expected)
        versions = versions.after(round, files)
        expected |= {device: Version(round, file) for device, file in files.items()}
        assert versions.of(range(DEVICES)) == expected
        assert before.of(range(DEVICES)) == expected_before
        assert versions.written(round) == {Version(round, file) for file in files.values()}
    assert versions.files.tolist() == sorted({round << 32 | file for round, file in expected.values()})


def test_only_requested_devices_are_returned():
    versions = Versions().after(1, {2: 2, 5: 2}).after(2, {5: 5})
    assert versions.of([5, 3]) == {5: Version(2, 5)}
    assert versions.of([]) == {}
    assert versions.after(3, {}) is versions
