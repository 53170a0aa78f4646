"""Threads whose work can be interrupted, as Ctrl-C interrupts the main thread."""

import ctypes
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

Result = TypeVar("Result")

REPEAT = 0.5  # seconds between two interrupts: a bare `except` or a finalizer swallows one
GRACE = 5.0  # seconds after which a thread that hangs in native code is left alone; it ends when that returns


class Interrupted(BaseException):
    """The work is no longer wanted; no `Exception`, so that `except Exception` in a strategy cannot swallow it."""


class InterruptibleThreads:
    """Threads that do work in the order in which it is given."""

    def __init__(self, count: int) -> None:
        """Start the threads.

        Args:
            count: Their number.
        """
        self._waiting = SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()
        self._threads = [Thread(target=self._run, name="devices", daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def begin(self, work: Callable[[], Result]) -> Future[Result]:
        """Begin work in the next free thread; the result raises what the work raises."""
        future = Future[Result]()
        self._waiting.put((future, work))
        return future

    def end(self) -> None:
        """Interrupt all work, and wait for the threads. Native code is not interrupted, but what follows it is."""
        until = monotonic() + GRACE
        while (living := [thread for thread in self._threads if thread.is_alive()]) and monotonic() < until:
            for thread in living:  # another thread may have the number of one that has ended
                assert thread.ident is not None
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted))
                self.begin(lambda: None)  # wakes a thread that waits for work
            for thread in living:
                thread.join(REPEAT)

    def _run(self) -> None:
        try:
            while True:
                _do(*self._waiting.get())
        except Interrupted:
            return


def _do(future: Future[Result], work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except Interrupted:
        raise
    except BaseException as error:
        future.set_exception(error)
