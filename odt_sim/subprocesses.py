"""The environment and the end of Python subprocesses."""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment and more variables, in which Python imports this odt_sim."""
    source = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **more, "PYTHONPATH": path}


def end_with_parent(parent: int) -> None:
    """Have this process get SIGTERM as soon as its parent ends, even if that is killed; macOS cannot.

    Args:
        parent: The parent's process id; if it has ended already, this process exits.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def end(code: int) -> NoReturn:
    """End this process at once: freeing a large model and its interpreters would take a sixth of a verification."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
