"""Memory limits and heap trimming."""

import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path

ARENAS = 2
M_ARENA_MAX = -8  # of malloc.h: https://man7.org/linux/man-pages/man3/mallopt.3.html


def share_arenas() -> None:
    """Limit this process and its subprocesses to two heaps (arenas) of glibc, unless `MALLOC_ARENA_MAX` is set.

    By default each thread gets its own, up to eight per CPU. Memory freed in one is not reused by other threads, so that
    Ray's many threads grow without holding more.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option and "MALLOC_ARENA_MAX" not in os.environ:
        set_option(M_ARENA_MAX, ARENAS)
        os.environ["MALLOC_ARENA_MAX"] = str(ARENAS)


def hand_back() -> None:
    """Return freed memory to the system: glibc keeps it, 75 MB after the set-up of a million devices."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def peak_memory() -> int:
    """Return this process's peak memory in bytes; on Linux `ru_maxrss` also counts the parent's."""
    peak = [line.split()[1] for line in _lines(Path("/proc/self/status")) if line.startswith("VmHWM:")]
    return int(peak[0]) << 10 if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory_limit(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes that this process may use: the machine's memory, or less in a control group such as a container.

    Args:
        groups: The control groups: https://docs.kernel.org/admin-guide/cgroup-v2.html.
        own: The file that lists this process's groups.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(groups, own)])


def _limits(groups: Path, own: Path) -> Iterator[int]:
    """Yield the limits of this process's group and its parents, in version 1 or 2 of control groups."""
    for line in _lines(own):
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            root = groups / controllers
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    file = folder / ("memory.limit_in_bytes" if controllers else "memory.max")
                    yield from (int(text) for text in _lines(file) if text.isdecimal())  # "max" is no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
