"""Resources held by a process and its actors, and a tracker that measures them after each job of a sweep."""

import json
from pathlib import Path
from typing import Any

import psutil

from odt_sim.trackers.base import Tracker

MEGABYTE = 1 << 20


def weigh() -> dict[str, float]:
    """Return the unshared megabytes, open descriptors and threads of this process and of Ray's actors."""
    children = psutil.Process().children(recursive=True)
    processes = [psutil.Process(), *(child for child in children if child.name().startswith("ray::_Host"))]
    return {
        "megabytes": sum(process.memory_full_info().uss for process in processes) / MEGABYTE,
        "descriptors": sum(process.num_fds() for process in processes),
        "threads": sum(process.num_threads() for process in processes),
    }


class Weighs(Tracker):
    """A tracker that appends a line to `weights.jsonl` in the working folder after each job."""

    def on_end(self, summary: Any) -> None:
        with Path("weights.jsonl").open("a") as file:
            print(json.dumps(weigh()), file=file)
