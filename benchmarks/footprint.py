"""What processes hold in memory, read from Linux' `/proc`."""

import os
from pathlib import Path

MEGABYTE = 1 << 20


def reset_peak() -> None:
    """Lets this process' peak begin anew, at what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Returns the bytes that this process held at its peak, shared ones too."""
    return _status("VmHWM")


def resident() -> int:
    """Returns the bytes that this process holds, shared ones too."""
    return _status("VmRSS")


def mapped() -> int:
    """Returns the bytes of shared memory, such as Ray's object store, that this process has touched."""
    return _status("RssShmem")


def own(pid: int | None = None) -> int:
    """Returns the bytes that a process holds alone (USS): neither libraries nor the object store that it maps with others."""
    lines = Path(f"/proc/{pid or os.getpid()}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
