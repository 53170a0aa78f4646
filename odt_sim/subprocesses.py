"""The environment and the termination of Python subprocesses."""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with more variables, in which Python imports this copy of odt_sim."""
    source = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **more, "PYTHONPATH": path}


def end_with_parent(parent: int) -> None:
    """Let the system send SIGTERM to this process when its parent ends, even if it is killed; not possible on macOS.

    Args:
        parent: The parent's process id; if the parent has ended already, this process exits.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def end(code: int) -> NoReturn:
    """End this process immediately: freeing a large model and its interpreters would take a sixth of a verification."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
