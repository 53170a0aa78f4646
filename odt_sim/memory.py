"""Memory that was freed, how much there was, and how much there may be."""

import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path

ARENAS = 2
M_ARENA_MAX = -8  # of malloc.h: https://man7.org/linux/man-pages/man3/mallopt.3.html


def share_arenas() -> None:
    """Has the threads of this process, and of each that it starts, share two heaps (arenas) of GNU's allocator.

    It would give new threads heaps of their own, up to eight a CPU. What one thread has freed in its heap serves no other,
    so that the heaps of Ray's many threads grew while what they held stayed the same. Where the user has set
    `MALLOC_ARENA_MAX`, that stays. Heaps that threads have already stay theirs.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option and "MALLOC_ARENA_MAX" not in os.environ:
        set_option(M_ARENA_MAX, ARENAS)
        os.environ["MALLOC_ARENA_MAX"] = str(ARENAS)  # read where a process starts


def hand_back() -> None:
    """Hands back to the system what was freed; GNU's allocator would keep it, 75 MB after the set-up of a million devices."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other allocators have none, and need none
    if trim:
        trim(0)


def peak_memory() -> int:
    """Returns the most bytes of memory that this process has had at once.

    Linux counts in `ru_maxrss` what its parent had, too: https://man7.org/linux/man-pages/man5/proc_pid_status.5.html.
    """
    own = [line.split()[1] for line in _lines(Path("/proc/self/status")) if line.startswith("VmHWM:")]
    return int(own[0]) << 10 if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory_limit(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Returns the bytes of the machine's memory, or fewer where a control group, as of a container, allows no more.

    Args:
        groups: Where the system shows its control groups: https://docs.kernel.org/admin-guide/cgroup-v2.html.
        own: The file that says in which of them this process is.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_allowed(groups, own)])


def _allowed(groups: Path, own: Path) -> Iterator[int]:
    """Yields what this process's group and those around it allow, in the second and in the first version of the system."""
    for line in _lines(own):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = groups / controllers
        group = root / path.lstrip("/")
        for folder in (one for one in (group, *group.parents) if one.is_relative_to(root)):
            for text in _lines(folder / ("memory.limit_in_bytes" if controllers else "memory.max")):
                if text.isdecimal():  # "max" is no limit
                    yield int(text)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
