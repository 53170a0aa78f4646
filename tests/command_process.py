"""The command as a subprocess."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

COMMAND = [sys.executable, "-m", "odt_sim"]


def kill_once(reached: Callable[[], Any], arguments: Sequence[str], seconds: float = 150) -> None:
    """Run the command, and kill it and its processes when a condition holds; fail if it ends earlier."""
    child = subprocess.Popen([*COMMAND, *arguments], start_new_session=True)
    started = time.monotonic()
    try:
        while not reached():
            assert child.poll() is None
            assert time.monotonic() - started < seconds
            time.sleep(0.02)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=60)
