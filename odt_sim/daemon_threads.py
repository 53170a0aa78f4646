"""Work beside the main thread that does not keep the process from ending."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


def in_daemon_thread(work: Callable[[], Result]) -> Future[Result]:
    """Start work in a daemon thread; the result raises what the work raises."""
    future = Future[Result]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
