"""With this folder on PYTHONPATH, a Python process and its subprocesses lack Linux-only features, as on macOS."""

import ctypes
import io
import multiprocessing
import os
import resource
import ssl
import subprocess
import sys
import sysconfig
from typing import Any

LOADED_BY_THE_NAME_OF_THE_SYSTEM = multiprocessing, ssl, subprocess, sysconfig.get_config_vars()
CALLS = "fdatasync", "memfd_create", "posix_fallocate", "sched_getaffinity"
SYMBOLS = "mallopt", "malloc_trim", "prctl", "syncfs"
FILES = "/proc/", "/sys/"

find, read, limit = ctypes.CDLL.__getattr__, io.open, resource.setrlimit


def finds(library: ctypes.CDLL, name: str) -> Any:
    if name in SYMBOLS:
        raise AttributeError(f"dlsym: symbol not found: {name}")
    return find(library, name)


def reads(file: Any, *arguments: Any, **keywords: Any) -> Any:
    if isinstance(file, str | os.PathLike) and os.fspath(file).startswith(FILES):
        raise FileNotFoundError(2, "No such file or directory", os.fspath(file))
    return read(file, *arguments, **keywords)


def limits(kind: int, values: tuple[int, int]) -> None:
    if kind == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    limit(kind, values)


for call in CALLS:
    delattr(os, call)
ctypes.CDLL.__getattr__ = finds  # type: ignore[method-assign]
io.open = reads
resource.setrlimit = limits
sys.platform = os.environ["OTHER_SYSTEM"]
