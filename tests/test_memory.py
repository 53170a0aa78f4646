"""Memory limits of machines and containers."""

import os

import pytest

from odt_sim._support.system import memory_limit

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": "1000"}, 1000),
        ("0::/\n", {"memory.max": "max"}, MACHINE),
        ("0::/user/job\n", {"user/memory.max": "3000", "user/job/memory.max": "max"}, 3000),
        ("5:memory:/docker/1\n1:cpu:/docker/1\n", {"memory/memory.limit_in_bytes": "2000", "memory.max": "1"}, 2000),
        ("5:memory:/\n0::/\n", {"memory/memory.limit_in_bytes": str(1 << 63)}, MACHINE),
        ("", {}, MACHINE),
    ],
)
def test_lowest_limit_counts(control_groups, own, limits, expected):
    assert memory_limit(*control_groups(own, limits)) == expected


def test_without_control_groups_the_machine_is_the_limit(tmp_path):
    assert memory_limit(tmp_path / "none", tmp_path / "none") == MACHINE
