"""How long a device may take, by the wall clock: the one thing on which a result may depend beside the seed."""

import faulthandler
import signal
import time
from collections.abc import Callable
from threading import current_thread, main_thread
from types import FrameType
from typing import TypeVar

from odt_sim.errors import ConfigurationError

Result = TypeVar("Result")

GRACE = 2.0
"""Seconds after which a process is ended that could not be interrupted: native code that does not come back."""

AGAIN = 0.5
"""Seconds between two interrupts of what has swallowed one: a bare `except`, or a finalizer, in which Python drops it."""


class OutOfTime(BaseException):
    """A device has taken too long; no `Exception`, so that no handler of a strategy's takes it for one of its own."""


def timed(work: Callable[[], Result], seconds: float, *, ends_process: bool) -> Result:
    """Does something in the main thread within some time.

    Python code is interrupted, again and again until it gives up. Native code is not, but what follows it is.

    Args:
        work: What to do.
        seconds: How long it may take, above 0.
        ends_process: Whether to end this process where native code does not come back `GRACE` seconds later; who gave it the
            work then finds it dead.

    Raises:
        OutOfTime: It took longer.
    """
    handler = signal.signal(signal.SIGALRM, _interrupt)
    before, until = (0.0, 0.0), time.monotonic() + seconds
    try:
        try:
            before = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            if ends_process:
                faulthandler.dump_traceback_later(seconds + GRACE, exit=True)
            done = work()
            if time.monotonic() >= until:
                raise OutOfTime
            return done
        finally:
            signal.setitimer(signal.ITIMER_REAL, *before)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)  # again: an interrupt may have come before the first
        if ends_process:
            faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)


def check_interruptible(seconds: float | None) -> None:
    """Checks that this thread can be interrupted.

    Raises:
        ConfigurationError: It is not the main thread, and devices' time is limited.
    """
    if seconds is not None and current_thread() is not main_thread():
        raise ConfigurationError(
            f"fleet.timeout: expected null outside of the main thread, found {seconds:g}; only the main thread can be "
            "interrupted: run there, or with backend=ray"
        )


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise OutOfTime
