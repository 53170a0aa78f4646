"""Progress display of a run, in a terminal or a notebook."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from time import monotonic
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from odt_sim._support.text import counted, few
from odt_sim.metrics.names import first_metric
from odt_sim.metrics.units import suited
from odt_sim.observers.base import Observer, RunInfo, in_notebook
from odt_sim.persistence.records import RoundRecord, is_failure
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.persistence.summary import Summary

BAR_WIDTHS = {100: 16, 80: 8}  # widths of the bar by minimum number of columns of the terminal
TIME_FROM = 60  # minimum number of columns of a terminal to show the time
FIGURES_WIDTH = 52  # columns of a line without name and bar
LOG_EVERY = 60.0  # minimum seconds between the lines of a log file
MAX_NAMED = 10  # maximum number of devices in the line that names excluded devices


class Display(Observer):
    """Line for a run with a bar of rounds, the time and the latest metrics; at the end, the excluded devices.

    A log file gets plain lines instead, at most one per minute, and the line with the bar at the end.
    """

    waits = True

    def __init__(self) -> None:
        """Show nothing before `show` or `on_begin`."""
        self._console = Console(stderr=True, force_jupyter=False)
        self._line: Progress | None = None
        self._closed = False
        self._output: Any = None  # the output handle in a notebook
        self._metric: list[str] = []
        self._excluded: dict[int, Counter[str]] = {}
        self._logged = monotonic()

    def show(self, name: str, rounds: int) -> None:
        """Show the line of a run, unless it is already shown.

        Args:
            name: The run's title.
            rounds: The number of its rounds.
        """
        if self._line is not None:
            return
        notebook = in_notebook()
        self._name = name
        self._line = _line(self._console, disable=notebook)
        self._task = self._line.add_task(_shortened(name, self._console.width), total=rounds, figures=["setting up"])
        if notebook:
            self._output = import_module("IPython.display").display(self._text(), raw=True, display_id=True)
        self._line.start()

    def on_begin(self, run: RunInfo) -> None:
        """Show the run's line, with its committed rounds."""
        self._folder = run.folder
        self.show(run.name, run.rounds)
        for record in run.recorded:
            self._count(record)
        self._update(completed=len(run.recorded))

    def on_round(self, record: RoundRecord) -> None:
        """Show a round's metrics, and name newly quarantined devices."""
        self._count(record)
        if (metric := first_metric(record.figures)) is not None:
            value = record.figures[metric]
            self._metric = [f"{metric} –" if value is None else f"{metric} {value:.3f}"]
        excluded = [f"[red]{record.excluded} excluded[/red]"] if record.excluded else []
        loss = [f"train loss {record.train_loss:.4g}"] if record.train_loss is not None else []
        clock = [_clock(record.simulated_end / 3600)] if record.simulated_end is not None else []
        figures = [*self._metric, *clock, *excluded, *loss]
        if record.newly_quarantined:
            reasons = {device: record.excluded_reasons[device] for device in record.newly_quarantined}
            self.on_warning(f"quarantined after round {record.round}: {_named(reasons)}")
        self._update(completed=record.round, figures=figures)
        self._log(record.round, figures)

    def on_warning(self, message: str) -> None:
        """Print a warning above the line."""
        self._print(f"[yellow]warning[/yellow] {escape(message)}")

    def on_end(self, summary: Summary | None) -> None:
        """End the line, and print why the run stopped early and which devices were excluded or not evaluated."""
        self.close(finished=summary is not None)
        if summary is None:
            return
        if summary.stopped:
            reason = summary.stopped.removesuffix(f", round {summary.rounds}")
            self._print(f"[yellow]stopped[/yellow] after round {summary.rounds}: {escape(reason)}")
        if self._excluded:
            reasons = {
                device: ", ".join(f"{reason} in {counted(count, 'round')}" for reason, count in times.items())
                for device, times in self._excluded.items()
            }
            self._print(f"[yellow]excluded[/yellow] {_named(reasons)}; see rounds.jsonl")
        devices = RunFolder(self._folder).devices()
        if missing := {each.device: each.not_evaluated for each in devices if is_failure(each.not_evaluated)}:
            self._print(f"[yellow]not evaluated[/yellow] {_named(missing)}")

    def close(self, finished: bool = False) -> None:
        """End the line; it stays on the terminal unless the run failed before its first round."""
        if self._line is not None and not self._closed:
            if not finished:
                self._update(figures=["[red]unfinished[/red]"])
            if finished or self._line.tasks[self._task].completed:
                self._line.stop()
            else:  # the error message is enough
                self._line.live.transient = True
                self._line.live.stop()
        self._closed = True

    def _update(self, **changes: Any) -> None:
        if self._line is not None:
            self._line.update(self._task, **changes)
            if self._output is not None:
                self._output.update(self._text(), raw=True)

    def _log(self, round: int, figures: Sequence[str]) -> None:
        if self._line is None or self._console.is_terminal or self._output is not None:
            return
        if monotonic() - self._logged >= LOG_EVERY:
            self._logged = monotonic()
            total = self._line.tasks[self._task].total
            self._print("  ".join([f"{escape(self._name)} {round}/{total:.0f}", *figures]))

    def _text(self) -> dict[str, str]:
        """Return the line as plain text, in the form that notebooks display."""
        assert self._line is not None
        console = Console(file=io.StringIO(), width=80, color_system=None, force_jupyter=False)
        with console.capture() as capture:
            console.print(self._line.get_renderable())
        return {"text/plain": capture.get().rstrip()}

    def _count(self, record: RoundRecord) -> None:
        for device, reason in record.excluded_reasons.items():
            self._excluded.setdefault(device, Counter())[reason] += 1

    def _print(self, message: str) -> None:
        self._console.print(message, highlight=False, soft_wrap=True)


class _Figures:
    """The figures of a line that fit as a whole, in order of priority."""

    def __init__(self, figures: Sequence[str]) -> None:
        self._figures = figures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text()
        for figure in self._figures:
            longer = Text("  ").join([line, Text.from_markup(figure)]) if line else Text.from_markup(figure)
            line = longer if longer.cell_len <= options.max_width else line
        yield line


class _FiguresColumn(ProgressColumn):
    def render(self, task: Task) -> _Figures:
        return _Figures(task.fields["figures"])


def _line(console: Console, *, disable: bool) -> Progress:
    whole, rest = Column(no_wrap=True), Column(no_wrap=True, ratio=1)
    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False, table_column=whole)]
    if bar := _bar_width(console.width):
        columns.append(BarColumn(bar_width=bar))
    columns.append(MofNCompleteColumn(table_column=whole))
    if console.width >= TIME_FROM:
        columns.append(TimeElapsedColumn(table_column=whole))
    columns.append(_FiguresColumn(table_column=rest))
    return Progress(*columns, console=console, expand=True, disable=disable)


def _bar_width(width: int) -> int:
    return next((bar for columns, bar in BAR_WIDTHS.items() if width >= columns), 0)


def _shortened(name: str, width: int) -> str:
    """Shorten a run's title to its share of a line, but keep its first word, the strategy."""
    strategy, room = name.split(" ")[0], width - FIGURES_WIDTH - _bar_width(width)
    if len(name) <= room:
        return name
    return strategy if room <= len(strategy) + 1 else f"{name[: room - 1].rstrip()}…"


def _clock(hours: float) -> str:
    """Return a simulated time as text, such as `hour 2.5` or `second 0.047`."""
    unit, factor = suited(hours, "hours")
    value = hours * factor
    return f"{unit.removesuffix('s')} {value:.1f}" if value >= 1 else f"{unit.removesuffix('s')} {value:.2g}"


def _named(reasons: Mapping[int, str]) -> str:
    return f"device {few([f'{device} ({reasons[device]})' for device in sorted(reasons)], MAX_NAMED)}"
