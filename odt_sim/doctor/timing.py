"""The time of a call."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

SECONDS = 0.4
"""The most seconds for which a call is timed, after the first call."""

MOST_CALLS = 200


def milliseconds(call: Callable[[], Any]) -> float:
    """Return the median time of a call in milliseconds, without the first call."""
    call()
    times = list[float]()
    until = time.perf_counter() + SECONDS
    while not times or (time.perf_counter() < until and len(times) < MOST_CALLS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times) * 1000
