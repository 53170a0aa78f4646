"""Processes that run a benchmark's cells in parallel, each in its own: a cell takes a minute, and a start seconds."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from threading import Event

from odt_sim._support.system import environment
from odt_sim.benchmark.cells import Cell, Outcome, read_outcome, write_outcome

INTERRUPTS = (-signal.SIGINT, -signal.SIGTERM)  # exit codes of a process that was stopped from outside, as by Ctrl-C
WORKER = (sys.executable, "-m", "odt_sim.cli.commands.benchmark_worker")


def run_cells(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells, and yield each with its outcome as soon as it ends; if its process dies, it fails.

    Args:
        cells: The cells.
        jobs: The number of cells that run at the same time.

    Raises:
        KeyboardInterrupt: A process was interrupted, so that its cell has no outcome.
    """
    processes: list[subprocess.Popen[str]] = []
    stopping = Event()

    def run(cell: Cell) -> Outcome:
        process = _started(cell)
        processes.append(process)
        if stopping.is_set():
            process.kill()
        code = process.wait()  # its standard input stays open until then: it ends when this process does
        if code in INTERRUPTS:  # a terminal's Ctrl-C goes to both processes, often to this one later
            raise KeyboardInterrupt
        if code and not stopping.is_set():
            reason = f"its process ended with exit code {code}"
            write_outcome(cell, Outcome(status="failed", reason=reason, budget=cell.plan.budget, seeds=cell.plan.seeds))
        outcome = read_outcome(cell.path)
        assert outcome is not None
        return outcome

    pool = ThreadPoolExecutor(jobs)
    try:
        running = {pool.submit(run, cell): cell for cell in cells}
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        pool.shutdown()
        for process in processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()


def _started(cell: Cell) -> subprocess.Popen[str]:
    """Return the process of a cell, which writes its outcome and its output to the cell's files."""
    cell.log.parent.mkdir(parents=True, exist_ok=True)
    with cell.log.open("ab") as log:
        process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            env=environment({"OPENBLAS_NUM_THREADS": "1"}),
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(f"{cell.dumps()}\n")
        process.stdin.flush()
    return process
