"""Background work in threads that do not keep the process alive."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

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
