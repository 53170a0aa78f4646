"""Processes that run a benchmark's cells in parallel; each runs many cells, since it takes seconds to start."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from queue import SimpleQueue

from odt_sim._support.system import environment
from odt_sim.benchmark.cells import Cell, Outcome, read_outcome, write_outcome

INTERRUPTS = (-signal.SIGINT, -signal.SIGTERM)  # exit codes of a process that was stopped from outside, as by Ctrl-C
WORKER = (sys.executable, "-m", "odt_sim.cli.benchmark_worker")


class _Worker:
    """Worker process that is started for its first cell, and restarted if it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self, cell: Cell) -> None:
        """Run a cell to its end; if the process dies, the cell fails.

        Raises:
            InterruptedError: The process was stopped.
            KeyboardInterrupt: The process was interrupted, so that the cell has no outcome.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{cell.dumps()}\n")
            process.stdin.flush()
        answered = process.stdout.readline()
        if self._stopped:
            raise InterruptedError
        if not answered:
            code = process.wait()
            if code in INTERRUPTS:  # a terminal's Ctrl-C goes to both processes, often to this one later
                raise KeyboardInterrupt
            reason = f"its process ended with exit code {code}"
            _end(process)
            self._process = None
            write_outcome(cell, Outcome(status="failed", reason=reason, budget=cell.plan.budget, seeds=cell.plan.seeds))

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                WORKER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment({"OPENBLAS_NUM_THREADS": "1"}),
            )
        return self._process

    def stop(self) -> None:
        """Kill the process."""
        self._stopped = True
        if self._process is not None:
            _end(self._process)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()


def run_cells(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells, and yield each with its outcome as soon as it ends.

    Args:
        cells: The cells.
        jobs: The number of cells that run at the same time.
    """
    workers = [_Worker() for _ in range(jobs)]
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def run(cell: Cell) -> Outcome:
        worker = idle.get()
        try:
            worker.run(cell)
        finally:
            idle.put(worker)
        outcome = read_outcome(cell.path)
        assert outcome is not None
        return outcome

    pool = ThreadPoolExecutor(jobs)
    try:
        running = {pool.submit(run, cell): cell for cell in cells}
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.stop()
        pool.shutdown()
