"""The system around odt_sim: cores and memory of this process, subprocesses, daemon threads, and packages of extras.

A container limits cores and memory by control groups: https://docs.kernel.org/admin-guide/cgroup-v2.html.
"""

import ctypes
import math
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import NoReturn, TypeVar

from odt_sim.errors import ConfigurationError, OdtSimError

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
    # macOS has no call for the cores that a process may run on
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *limits]))


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


def _quota(folder: Path, version: int) -> tuple[str, str]:
    """Return the microseconds of CPU time per period, and the period in microseconds; empty texts without a limit."""
    if version == 2:
        numbers = " ".join(lines(folder / "cpu.max")).split()
    else:
        numbers = [text for name in ("quota", "period") for text in lines(folder / f"cpu.cfs_{name}_us")]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else ("", "")


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


PR_SET_PDEATHSIG = 1  # https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with more variables, in which Python imports this copy of odt_sim."""
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **more, "PYTHONPATH": path}


def end(code: int) -> NoReturn:
    """End this process immediately: freeing a large model and its interpreters would take a sixth of a verification."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


Result = TypeVar("Result")


def in_daemon_thread(work: Callable[[], Result]) -> Future[Result]:
    """Start work in a daemon thread; the returned future has its result or its exception."""
    future = Future[Result]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


PACKAGES: dict[str, Sequence[str]] = {
    "flower": ("flwr", "flwr_datasets"),
    "phone": ("segno", "starlette", "uvicorn", "websockets"),
    "watch": ("starlette", "uvicorn"),
}
"""The modules that each extra installs; only the extra's part of odt_sim imports them."""


def check_extra(extra: str) -> None:
    """Check that the packages of an extra are installed.

    Raises:
        ConfigurationError: A package is missing.
    """
    missing = [name for name in PACKAGES[extra] if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"{extra}: {missing[0]} is missing; run: pip install 'odt_sim[{extra}]'")


def package(module: str, needed: str, extra: str, kind: type[OdtSimError] = ConfigurationError) -> ModuleType:
    """Import a module of an extra.

    Args:
        module: The module.
        needed: The need, for the error, such as `data: sounds need soundfile`.
        extra: The extra that installs the module.
        kind: The type of the error for a missing package.

    Raises:
        OdtSimError: The module cannot be imported; the error is of `kind`.
    """
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a library of the system is missing
        raise kind(f"{needed} ({error}); run: pip install 'odt_sim[{extra}]'") from error
