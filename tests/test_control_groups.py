"""The number of cores of machines and containers."""

import os

import pytest

from odt_sim._support.system import cores


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/\n", {"cpu.max": "200000 100000"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000"}, 2),
        ("0::/\n", {"cpu.max": "5000 100000"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000"}, 8),
        ("0::/user/job\n", {"user/cpu.max": "300000 100000", "user/job/cpu.max": "max 100000"}, 3),
        (
            "4:cpu,cpuacct:/docker/1\n5:memory:/\n",
            {"cpu,cpuacct/docker/1/cpu.cfs_quota_us": "400000", "cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("4:cpuset:/\n", {"cpuset/cpu.max": "100000 100000"}, 8),
        ("", {}, 8),
    ],
)
def test_lowest_limit_counts(control_groups, monkeypatch, own, limits, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    assert cores(*control_groups(own, limits)) == expected


def test_without_control_groups_the_allowed_cores_count(tmp_path):
    assert cores(tmp_path / "none", tmp_path / "none") == len(os.sched_getaffinity(0))
