"""Expected handling of damaged files: success or one clear line, quickly, without writing elsewhere."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from odt_sim.errors import OdtSimError

SECONDS = 10.0  # CPU seconds of this process, in addition to the trial's

_seen: list[str] = []  # unpickled objects, and files opened for writing


def note(event: str, given: tuple[object, ...]) -> None:
    """Record unpickling and files opened for writing; an audit hook, which Python never removes.

    Python may compile a module at its first import, which is ignored.
    """
    if event == "pickle.find_class":
        _seen.append(f"unpickles {given}")
    if (
        event == "open"
        and isinstance(given[0], str)
        and isinstance(given[2], int)
        and given[2] & (os.O_WRONLY | os.O_RDWR)
        and Path(given[0]).parent.name != "__pycache__"
    ):
        _seen.append(given[0])


class Outcomes:
    """Outcomes of cases.

    Attributes:
        counts: Number of cases by outcome.
    """

    def __init__(self, *folders: Path) -> None:
        """Set the folders to which cases may write."""
        self.counts = Counter[str]()
        self._may = tuple(map(str, (*folders, "/dev/")))

    def of(self, case: object, work: Callable[[], str]) -> str:
        """Run a case; `work` returns the outcome of a success.

        Returns:
            The error's line; empty for none.
        """
        _seen.clear()
        started, line = time.process_time(), ""
        try:
            outcome = work()
        except OdtSimError as error:
            line, outcome = str(error), "refused"
            assert line, case
            assert "\n" not in line, case
        assert time.process_time() - started < SECONDS, case
        assert [event for event in _seen if not event.startswith(self._may)] == [], case
        self.counts[outcome] += 1
        return line
