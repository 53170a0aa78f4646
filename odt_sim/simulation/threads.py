"""The backend that runs blocks in threads of this process, since LiteRT computes without Python's global lock."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import replace
from functools import partial
from itertools import islice
from time import sleep
from typing import Any

from odt_sim.device.embedding_cache import EmbeddingCache
from odt_sim.device.engines import RuntimeChoice, RuntimeName
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.interruptible_threads import InterruptibleThreads
from odt_sim.model.tensors import read_only
from odt_sim.persistence.storage import check_writable
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.messages import Messages
from odt_sim.simulation.sums import OrderedSum
from odt_sim.simulation.worker import Worker
from odt_sim.strategies.base import Tensors

Work = Callable[[Worker, int, Task, Tensors], Any]
"""The work of a thread, given its worker, a block's number, its task and the server's broadcast."""

HANDOVER = 1e-4
"""Seconds in which the main thread leaves Python's lock to the threads that it woke; else it keeps it until it waits."""

AHEAD = 8
"""Blocks of each thread that are begun before their results are taken; so many results are kept at most."""


class ThreadsBackend:
    """A worker in each thread, with interpreters, strategy and aggregator of its own; data and embeddings are shared.

    Attributes:
        embeddings: As of `SerialBackend`.
    """

    def __init__(
        self, threads: int | None = None, runtime: RuntimeName = "litert", runtime_python: str | None = None
    ) -> None:
        """Check the settings; start nothing.

        Args:
            threads: The number of threads; None for the cores that this process may use.
            runtime: As of `SerialBackend`.
            runtime_python: Likewise.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ConfigurationError(f"backend.threads: expected null or a number of at least 1, found {threads!r}")
        self.runtime = RuntimeChoice(runtime, runtime_python)
        self.threads = threads or cores()
        self.embeddings = EmbeddingCache()
        self._threads: InterruptibleThreads | None = None

    def start(self) -> None:
        """Do nothing."""

    def open(self, job: Job) -> None:
        """Make the workers.

        Raises:
            FileError: The run's storage cannot be written.
            ConfigurationError: Devices have a time limit.
            SimulationError: The strategy or the aggregator cannot be copied.
        """
        check_writable(job.storage)  # now, not after the first round
        if job.fleet.timeout is not None:
            raise ConfigurationError(
                f"fleet.timeout: expected null with backend=threads, found {job.fleet.timeout:g}; only the main thread "
                "can be interrupted: use backend=ray, or serial"
            )
        self._job, self._idle = job, [Worker(_own(job), embeddings=self.embeddings) for _ in range(self.threads)]
        self._threads = InterruptibleThreads(self.threads)

    def train(self, tasks: Sequence[Task], messages: Messages) -> Iterator[Trained]:
        """Train blocks, of which the first begin at once, and return their sum alone: threads add what they trained.

        A round on the clock adds the blocks of several calls, one after the other, so that it needs each of them.
        """
        if any(task.saves is not None for task in tasks):
            return self._run(lambda worker, _, task, received: worker.train(task, received), tasks, messages)
        sum = OrderedSum()

        def train(worker: Worker, number: int, task: Task, received: Tensors) -> None:
            sum.add(number, worker.train(task, received))

        done = self._run(train, tasks, messages)

        def total() -> Iterator[Trained]:
            for _ in done:
                pass
            yield sum.total

        return total()

    def evaluate(self, tasks: Sequence[Task], messages: Messages) -> Iterator[list[Row]]:
        """Evaluate blocks; the first begin at once."""
        return self._run(lambda worker, _, task, received: worker.evaluate(task, received), tasks, messages)

    def close(self) -> None:
        """End the threads, those that work too, and drop the workers and their interpreters."""
        if self._threads:
            self._threads.end()
        self._threads, self._idle, self.embeddings = None, [], EmbeddingCache()

    def _run(self, work: Work, tasks: Sequence[Task], messages: Messages) -> Iterator[Any]:
        """Begin the first blocks, and return the results of all in order."""
        if self._threads is None:
            raise SimulationError("backend threads: no job is open; call open first")
        threads, received = self._threads, read_only(messages.broadcast)
        ahead = AHEAD * self.threads
        waiting = iter(in_turn(self._job.costs(tasks), ahead))
        begun: dict[int, Future[Any]] = {}

        def begin(most: int) -> None:
            for number in islice(waiting, most):
                task = messages.addressed(tasks[number])
                begun[number] = threads.begin(partial(self._in_worker, work, number, task, received))

        def results() -> Iterator[Any]:
            for number in range(len(tasks)):
                if number == max(0, len(tasks) - ahead):  # all have begun: wake up once, not after each
                    wait(begun.values(), return_when=FIRST_EXCEPTION)
                yield begun.pop(number).result()
                begin(1)

        begin(ahead)
        sleep(HANDOVER)
        return results()

    def _in_worker(self, work: Work, number: int, task: Task, received: Tensors) -> Any:
        """Do a block in the worker that was used last, whose weights are still in a processor's cache."""
        worker = self._idle.pop()
        try:
            return work(worker, number, task, received)
        finally:
            self._idle.append(worker)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def in_turn(costs: Sequence[float], last: int) -> list[int]:
    """Return the order in which to begin blocks: the last ones by descending cost, so that threads end together.

    Args:
        costs: The cost of each block, in any unit.
        last: The number of the last ones; those before keep their order, in which results are taken.
    """
    first = max(0, len(costs) - last)
    return [*range(first), *sorted(range(first, len(costs)), key=lambda number: -costs[number])]


def _own(job: Job) -> Job:
    """Return a job with a strategy and an aggregator that no other thread uses."""
    with job.strategy_errors("to be copied"):
        strategy = copy.deepcopy(job.strategy)
    with job.aggregator_errors("to be copied"):
        return replace(job, strategy=strategy, aggregator=copy.deepcopy(job.aggregator))
