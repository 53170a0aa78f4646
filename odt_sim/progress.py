"""The live display of a run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


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
        text = f"train loss {loss:.3f}{self._metric}" if loss is not None else self._metric
        if record["excluded"]:
            text += f"  [red]{record['excluded']} left out[/red]"
        self._progress.update(self._task, completed=record["round"], figures=text)

    def fail(self) -> None:
        """Shows that the run ended early."""
        self._progress.update(self._task, figures="[red]failed[/red]")


@contextmanager
def shown(name: str, rounds: int) -> Iterator[RunProgress]:
    """Shows a run's progress while the block runs; its line stays afterwards.

    Args:
        name: What is run.
        rounds: How many rounds it has.
    """
    columns = (
        TextColumn("{task.description}", table_column=None),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        line = RunProgress(progress, name, rounds)
        try:
            yield line
        except BaseException:
            line.fail()
            raise
