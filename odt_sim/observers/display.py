"""The live display of a run."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from odt_sim.simulation.exclusion import told

FIGURES_WIDTH = 60  # of a line without its name: the bar at its shortest, the rounds, the time and the figures
NAMED = 10  # devices that were left out, at most, in the line that names them


class RunProgress:
    """One line for a run: a bar of rounds, and the last known figures."""

    def __init__(self, progress: Progress, name: str, rounds: int) -> None:
        """Shows the line, as one that is being set up.

        Args:
            progress: Where it is shown.
            name: What is run.
            rounds: How many rounds it has.
        """
        self._progress, self._metric = progress, ""
        self._task = progress.add_task(name, total=rounds, figures="setting up")

    def on_round(self, record: Mapping[str, Any]) -> None:
        """Shows a round's record."""
        for metric in ("accuracy", "mse"):
            if metric in record:
                self._metric = f"  {metric} {record[metric]:.3f}"
        loss = record["train_loss"]
        text = f"train loss {loss:.4g}{self._metric}" if loss is not None else self._metric
        if record["excluded"]:
            text += f"  [red]{record['excluded']} left out[/red]"
        if record["newly_quarantined"]:
            reasons = {device: record["excluded_reasons"][device] for device in record["newly_quarantined"]}
            self.warn(f"quarantined after round {record['round']}: {told(reasons)}")
        self._progress.update(self._task, completed=record["round"], figures=text)

    def warn(self, message: str) -> None:
        """Prints a line above that of the run."""
        self._progress.print(f"[yellow]warning[/yellow] {escape(message)}", highlight=False, soft_wrap=True)

    def end(self, how: str) -> None:
        """Shows that the run ended early."""
        self._progress.update(self._task, figures=f"[red]{how}[/red]")


@contextmanager
def shown(name: str, rounds: int) -> Iterator[RunProgress]:
    """Shows a run's progress while the block runs; its line stays afterwards.

    Args:
        name: What is run.
        rounds: How many rounds it has.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console) as progress:
        line = RunProgress(progress, _shortened(name, console.width - FIGURES_WIDTH), rounds)
        try:
            yield line
        except BaseException as error:
            line.end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
            raise


def _shortened(name: str, width: int) -> str:
    width = max(width, 12)
    return name if len(name) <= width else f"{name[: width - 1]}…"


def left_out(rounds: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns what to say of devices that were left out of rounds; None where none was.

    Args:
        rounds: The lines of `rounds.jsonl`.
    """
    times: dict[int, Counter[str]] = {}
    for row in rounds:
        for device, reason in row["excluded_reasons"].items():
            times.setdefault(int(device), Counter())[reason] += 1
    if not times:
        return None
    first = ", ".join(f"{device} ({_told(times[device])})" for device in sorted(times)[:NAMED])
    more = f" and {len(times) - NAMED} more" if len(times) > NAMED else ""
    return f"device {first}{more}; rounds.jsonl names them round by round"


def not_evaluated(devices: Iterable[Mapping[str, Any]]) -> str | None:
    """Returns what to say of devices that could not be evaluated; None where all were.

    Args:
        devices: The lines of `devices.jsonl`.
    """
    return told({row["device"]: row["not_evaluated"] for row in devices if "not_evaluated" in row}) or None


def _told(times: Counter[str]) -> str:
    return ", ".join(f"{reason} in {count} round{'s' if count > 1 else ''}" for reason, count in times.items())
