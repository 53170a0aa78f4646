"""Memory of processes, read from Linux's `/proc`."""

import os
from pathlib import Path

MEGABYTE = 1 << 20


def reset_peak() -> None:
    """Reset this process's peak to its current memory."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return the peak resident bytes of this process, including shared memory."""
    return _status("VmHWM")


def resident() -> int:
    """Return the resident bytes of this process, including shared memory."""
    return _status("VmRSS")


def mapped() -> int:
    """Return the bytes of shared memory, such as Ray's object store, that this process has touched."""
    return _status("RssShmem")


def own(pid: int | None = None) -> int:
    """Return the private bytes of a process (USS), without libraries and the object store."""
    lines = Path(f"/proc/{pid or os.getpid()}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
