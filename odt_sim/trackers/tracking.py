"""Drives a tracker through a run: it is always closed, and its failures do not cost the run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from odt_sim.errors import ConfigurationError, OdtSimError
from odt_sim.persistence.records import Row
from odt_sim.trackers.base import Tracker


class Tracking:
    """A run that is being tracked.

    Attributes:
        summary: What the run ended with; None until it did.
    """

    def __init__(self, tracker: Tracker) -> None:
        """Takes a tracker that has started."""
        self.summary: Row | None = None
        self._tracker = tracker
        self._works = True

    def round(self, record: Row) -> None:
        """Tracks a round's record."""
        if self._works:
            self._attempt(lambda: self._tracker.round(record), f"round {record['round']}")

    def close(self) -> None:
        """Closes the tracker, with the run's summary where there is one."""
        self._attempt(lambda: self._tracker.end(self.summary), "the end of the run")

    def _attempt(self, call: Callable[[], None], what: str) -> None:
        try:
            call()
        except Exception as error:  # a tool or a network that fails must not end hours of training
            self._works = False
            message = f"{_named(self._tracker, error)} at {what}; the records in the run's folder are complete"
            Console(stderr=True).print(f"[yellow]warning[/yellow] {escape(message)}", highlight=False, soft_wrap=True)


@contextmanager
def tracked(tracker: Tracker, name: str, settings: Mapping[str, Any], folder: Path) -> Iterator[Tracking]:
    """Tracks what the block runs; a block that raises, or leaves no summary, is a run that failed.

    Args:
        tracker: Where the figures go.
        name: What the run is called.
        settings: The configuration, flat, as `odt_sim.trackers.flat.settings_of` gives it.
        folder: The run's folder.

    Raises:
        ConfigurationError: The tracker cannot start.
    """
    try:
        tracker.start(name, settings, folder)
    except OdtSimError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"{_named(tracker, error)} at the start; correct tracker.* or choose tracker=none"
        ) from error
    tracking = Tracking(tracker)
    try:
        yield tracking
    finally:
        tracking.close()


def _named(tracker: Tracker, error: Exception) -> str:
    return f"tracker {type(tracker).__name__}: failed ({' '.join(f'{type(error).__name__}: {error}'.split())})"
