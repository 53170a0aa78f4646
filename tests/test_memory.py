"""Threads share heaps, and a container's limit counts, not the machine's memory alone."""

import os
import re
import subprocess
import sys

import pytest

from odt_sim.memory import ARENAS, memory_limit

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
def test_the_least_of_the_machine_and_the_groups_around_a_process_counts(tmp_path, own, limits, expected):
    (tmp_path / "own").write_text(own)
    for name, text in limits.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(f"{text}\n")
    assert memory_limit(tmp_path / "groups", tmp_path / "own") == expected


def test_a_system_without_groups_has_the_machines_memory(tmp_path):
    assert memory_limit(tmp_path / "none", tmp_path / "none") == MACHINE


ALLOCATING = """
import ctypes, sys, threading
from odt_sim.memory import share_arenas
if "share" in sys.argv:
    share_arenas()
both = threading.Barrier(8)
def allocate():
    block = bytearray(10_000)
    both.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
"""

STARTING = """
import subprocess, sys
from odt_sim.memory import share_arenas
share_arenas()
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""


def arenas(*command, **environment):
    """How many arenas a program of Python says that it has."""
    before = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    command = [sys.executable, "-c", *command]
    told = subprocess.run(command, env={**before, **environment}, check=True, capture_output=True, text=True).stderr
    return len(re.findall(r"^Arena \d+:", told, re.MULTILINE))


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's allocator")
def test_threads_share_the_heaps():
    """Eight threads at once beside the main one; on one CPU there are eight heaps at most."""
    assert arenas(ALLOCATING) in (8, 9)
    assert arenas(ALLOCATING, "share") == ARENAS
    assert arenas(STARTING, ALLOCATING) == ARENAS
    assert arenas(ALLOCATING, "share", MALLOC_ARENA_MAX="3") == 3
