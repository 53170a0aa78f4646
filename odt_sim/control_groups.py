"""The control groups of this process, such as those of a container: https://docs.kernel.org/admin-guide/cgroup-v2.html."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
"""The file that lists this process's groups."""


def cores(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return the number of cores that this process may use: those it may run on, or fewer if a group limits CPU time."""
    limits = [
        math.ceil(int(quota) / int(period))
        for folder, version in folders("cpu", groups, own)
        for quota, period in [_quota(folder, version)]
        if quota.isdecimal() and period.isdecimal()  # "max" and "-1" are no limits
    ]
    return max(1, min([_allowed(), *limits]))


def folders(controller: str, groups: Path = GROUPS, own: Path = OWN) -> Iterator[tuple[Path, int]]:
    """Yield the folders of this process's group and its parents for a resource, each with the version, 1 or 2.

    Args:
        controller: The name of the resource, such as `memory`.
        groups: The folder of all groups.
        own: The file that lists this process's groups.
    """
    for line in lines(own):
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            root = groups / controllers
            group = root / path.lstrip("/")
            version = 1 if controllers else 2
            yield from ((folder, version) for folder in (group, *group.parents) if folder.is_relative_to(root))


def lines(path: Path) -> list[str]:
    """Return the lines of a system file; empty if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _allowed() -> int:
    """Return the number of cores that this process may run on; on macOS, which has no such call, the machine's cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota(folder: Path, version: int) -> tuple[str, str]:
    """Return the microseconds of CPU time per period, and the period in microseconds; empty texts without a limit."""
    if version == 2:
        numbers = " ".join(lines(folder / "cpu.max")).split()
    else:
        numbers = [text for name in ("quota", "period") for text in lines(folder / f"cpu.cfs_{name}_us")]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else ("", "")
