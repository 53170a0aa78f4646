"""The wall-clock limit of a device's work: the only setting that lets results depend on the machine's speed."""

import faulthandler
import signal
import time
from collections.abc import Callable
from threading import current_thread, main_thread
from types import FrameType
from typing import TypeVar

from odt_sim.errors import ConfigurationError

Result = TypeVar("Result")

GRACE = 2.0  # seconds after the limit until a process that hangs in native code is ended
REPEAT = 0.5  # seconds between two interrupts: a bare `except` or a finalizer may swallow one


class OutOfTime(BaseException):
    """A device exceeded its time limit; no `Exception`, so that `except Exception` in a strategy cannot swallow it."""


def timed(work: Callable[[], Result], seconds: float, *, ends_process: bool) -> Result:
    """Return the result of work in the main thread; at the limit, interrupt the work repeatedly until it ends.

    Args:
        work: The work; Python code is interrupted, native code only once it returns.
        seconds: The limit, above 0.
        ends_process: Whether to end this process if native code has not returned `GRACE` seconds after the limit.

    Raises:
        OutOfTime: The work exceeded the limit.
    """
    handler = signal.signal(signal.SIGALRM, _interrupt)
    before, until = (0.0, 0.0), time.monotonic() + seconds
    try:
        try:
            before = signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT)
            if ends_process:
                faulthandler.dump_traceback_later(seconds + GRACE, exit=True)
            result = work()
            if time.monotonic() >= until:
                raise OutOfTime
            return result
        finally:
            signal.setitimer(signal.ITIMER_REAL, *before)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)  # again: an interrupt may have prevented the first reset
        if ends_process:
            faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)


def check_interruptible(seconds: float | None) -> None:
    """Check that a time limit can be enforced in this thread.

    Raises:
        ConfigurationError: This is not the main thread.
    """
    if seconds is not None and current_thread() is not main_thread():
        raise ConfigurationError(
            f"fleet.timeout: expected null outside of the main thread, found {seconds:g}; only the main thread can "
            "be interrupted: run in it, or use backend=ray"
        )


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise OutOfTime
