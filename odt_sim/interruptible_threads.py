"""Threads whose work can be interrupted, as Ctrl-C interrupts the main thread."""

import ctypes
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

Result = TypeVar("Result")

PATIENCE = 0.5  # seconds before each interrupt: most work ends by itself; a bare `except` or a finalizer swallows one
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
        self._waiting, self._ended = SimpleQueue[tuple[Future[Any], Callable[[], Any]]](), False
        self._threads = [Thread(target=self._run, name="devices", daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def begin(self, work: Callable[[], Result]) -> Future[Result]:
        """Begin work in the next free thread; the result raises what the work raises."""
        future = Future[Result]()
        self._waiting.put((future, work))
        return future

    def end(self) -> None:
        """Drop the work that has not begun, wait for the threads, and interrupt work that takes longer.

        Native code is not interrupted, but what follows it is.
        """
        self._ended, until = True, monotonic() + GRACE
        for _ in self._threads:
            self.begin(lambda: None)  # wakes a thread that waits for work
        while (living := self._living()) and monotonic() < until:
            for thread in living:
                if thread.is_alive():  # another thread may have the number of one that has ended
                    _interrupt(thread)

    def _living(self) -> list[Thread]:
        """Return the threads that do not end within the time that all have together."""
        until = monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))
        return [thread for thread in self._threads if thread.is_alive()]

    def _run(self) -> None:
        try:
            while True:
                future, work = self._waiting.get()
                if self._ended:
                    return
                _do(future, work)
        except Interrupted:
            return


def _interrupt(thread: Thread) -> None:
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted))


def _do(future: Future[Result], work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except Interrupted:
        raise
    except BaseException as error:
        future.set_exception(error)
