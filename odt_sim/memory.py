"""Memory limits and heap trimming."""

import ctypes
import os
import resource
from pathlib import Path

from odt_sim.control_groups import GROUPS, OWN, folders, lines

ARENAS = 2
M_ARENA_MAX = -8  # from malloc.h: https://man7.org/linux/man-pages/man3/mallopt.3.html


def share_arenas() -> None:
    """Limit this process and its subprocesses to two heaps (arenas) of glibc, unless `MALLOC_ARENA_MAX` is set.

    By default each thread gets its own arena, up to eight per CPU. Other threads do not reuse memory that is freed in
    an arena, so a process with Ray's many threads would grow without need.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option and "MALLOC_ARENA_MAX" not in os.environ:
        set_option(M_ARENA_MAX, ARENAS)
        os.environ["MALLOC_ARENA_MAX"] = str(ARENAS)


def hand_back() -> None:
    """Return freed memory to the system: glibc keeps it, for example 75 MB after setting up a million devices."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def peak_memory() -> int:
    """Return this process's peak memory in bytes, by `VmHWM` if known: Linux' `ru_maxrss` includes the parent's."""
    peak = [line.split()[1] for line in lines(Path("/proc/self/status")) if line.startswith("VmHWM:")]
    return int(peak[0]) << 10 if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory_limit(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return the bytes of memory that this process may use: the machine's, or less in a control group or container.

    Args:
        groups: The folder of all control groups.
        own: The file that lists this process's groups.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = [
        folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")
        for folder, version in folders("memory", groups, own)
    ]
    limits = (int(text) for file in files for text in lines(file) if text.isdecimal())  # "max" is no limit
    return min([machine, *limits])
