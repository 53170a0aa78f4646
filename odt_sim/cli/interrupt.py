"""Ctrl-C, the SIGTERM of a scheduler and the SIGHUP of a lost terminal end a run soon and are never lost.

Python raises KeyboardInterrupt wherever the main thread is. In a finalizer or a callback, such as those of imports, it is
dropped, and native code keeps it waiting. So the command remembers that it was interrupted, and looks at it before each step
that lasts or commits something; and a thread, to which the system's own handler writes, ends what does not end by itself.
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS = 4.0  # from the first signal until the process ends, whatever it is at
TOGETHER = 0.3  # seconds in which signals are one: `timeout` sends one to its command, and at once one to the group
SHOW_CURSOR = "\x1b[?25h"  # which the live display of a run hides
ENDED = 0  # the number of no signal

_received: list[int] = []
_raised: list[int] = []
_ended_by: list[int] = []  # what the last block received
_way_on: list[str] = []
_before_end: list[Callable[[], object]] = []


class Interrupted(KeyboardInterrupt):
    """A signal that ends the run."""

    def __init__(self, number: int, *args: object) -> None:
        """Takes the signal's number, and what the user is told."""
        super().__init__(*args)
        self._number = number

    @property
    def exit_code(self) -> int:
        """128 and the number of the signal, as shells have it: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + self._number


def received() -> int | None:
    """Returns the signal by which the block that runs, or has just ended, was interrupted; None where it was not."""
    return next(iter([*_received, *_ended_by]), None)


def check() -> None:
    """Looks whether the run was interrupted, since KeyboardInterrupt may have been lost on its way.

    Raises:
        Interrupted: It was. Outside `interruptible` nothing is known of signals.
    """
    if _received:
        raise Interrupted(_received[0])


def tell(way_on: str) -> None:
    """Sets what an interrupt from now on tells the user, such as how to go on."""
    _way_on[:] = [way_on]


@contextmanager
def interruptible() -> Iterator[None]:
    """Ends the block by `Interrupted` at the first signal, and the process at the second or `SECONDS` after the first.

    Signals within `TOGETHER` of the first are no second one.
    Signals that the process was started to ignore, as in the background of a shell or by `nohup`, stay ignored.

    Raises:
        Interrupted: A signal was received; its text is what the user is told.
    """
    if threading.current_thread() is not threading.main_thread():  # the only one that may handle signals
        yield
        return
    _ended_by.clear()
    try:
        with _handled():
            yield
        check()
    except BaseException as error:
        if not _received and not isinstance(error, KeyboardInterrupt):
            raise
        number = _received[0] if _received else signal.SIGINT
        raise Interrupted(number, "; ".join(["interrupted", *_way_on])) from error
    finally:
        _ended_by[:] = _received
        _received.clear()
        _raised.clear()
        _way_on.clear()


@contextmanager
def _handled() -> Iterator[None]:
    """Handles signals while the block runs; `_received` has all of them after it, also those that a library handled."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watch = threading.Thread(target=_watch, args=(reading,), daemon=True)
    watch.start()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    before_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in SIGNALS:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.write(writing, bytes([ENDED]))
        watch.join()
        os.close(reading)
        os.close(writing)


def _raise(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    _raised.append(number)
    if len(_raised) == 1:  # what the first has ended cleans up now; the watching thread ends the process at the second
        raise Interrupted(number)


def _watch(reading: int) -> None:
    """Reads the numbers of signals as they come, and ends the process where the block does not end in time."""
    if _next(reading, None) == ENDED:
        return
    first = time.monotonic()
    number = _next(reading, first + SECONDS)
    while number in SIGNALS and time.monotonic() < first + TOGETHER:
        number = _next(reading, first + SECONDS)
    if number != ENDED:
        end(128 + _received[0], "interrupted; ended at once")


def _next(reading: int, until: float | None) -> int | None:
    """Returns the number of the next signal, `ENDED` where the block has ended, or None where neither comes until then."""
    while select.select([reading], [], [], until and max(0.0, until - time.monotonic()))[0]:
        number = os.read(reading, 1)[0]
        if number in SIGNALS:
            _received.append(number)
        if number in (ENDED, *SIGNALS):
            return number
    return None


def end(exit_code: int, why: str) -> NoReturn:
    """Ends the process from any thread, as if it had been killed, which a run survives; tells why and how to go on."""
    try:
        cursor = SHOW_CURSOR if os.isatty(2) else ""
        os.write(2, f"{cursor}\n{'; '.join([why, *_way_on])}\n".encode())
    finally:
        leave(exit_code)


def before_end(work: Callable[[], object]) -> None:
    """Has something done before the process ends by `leave`, which does nothing else; what fails then is nobody's."""
    _before_end.append(work)


def leave(exit_code: int) -> NoReturn:
    """Ends the process at once."""
    try:
        for work in _before_end:
            with suppress(Exception):
                work()
    finally:
        os._exit(exit_code)
