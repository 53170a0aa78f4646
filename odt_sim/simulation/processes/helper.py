"""A fork of the run's process that runs blocks until its parent ends."""

import ctypes
import mmap
import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, replace
from io import StringIO
from itertools import accumulate
from time import perf_counter
from typing import Any, Literal, NamedTuple

from odt_sim._support.system import PR_SET_PDEATHSIG
from odt_sim.device.embedding_cache import Embedded, EmbeddingCache
from odt_sim.model.tensors import read_only
from odt_sim.simulation.job import Job, Task
from odt_sim.simulation.processes.mailbox import Mailbox
from odt_sim.simulation.processes.plain import plain_result, plain_tasks, tasks_of, tensors_of
from odt_sim.simulation.processes.queue import ROOM, Queue
from odt_sim.simulation.worker import Worker
from odt_sim.strategies.base import Tensors

Method = Literal["train", "evaluate"]

FAILED = -1
"""The result's number if the block failed in the helper."""

AWAKE = 0.002
"""The seconds for which an idle process polls before it sleeps; rounds of tiny devices are a millisecond apart."""

MOST_EMBEDDED = 16 << 20
"""The maximum bytes of embeddings in a message; other processes compute the rest themselves."""


@dataclass(frozen=True)
class Batch:
    """Blocks that are sent together.

    Attributes:
        id: The batch's unique number in the job.
        method: The worker's method.
        tasks: The blocks.
        broadcast: The broadcast's unique number in the job.
        broadcast_place: The broadcast's number in its mailbox.
        embeddings: The embeddings that processes computed since the last batch.
    """

    id: int
    method: Method
    tasks: Sequence[Task]
    broadcast: int
    broadcast_place: int
    embeddings: Sequence[Embedded] = ()

    def plain(self) -> Sequence[Any]:
        """Return the batch in its plain form; see `odt_sim.simulation.processes.plain`."""
        return self.id, self.method, plain_tasks(self.tasks), self.broadcast, self.broadcast_place, self.embeddings

    @classmethod
    def of(cls, sent: Sequence[Any]) -> "Batch":
        """Return a batch, given its plain form."""
        id, method, tasks, *rest = sent
        return cls(id, method, tasks_of(tasks), *rest)


class Share(NamedTuple):
    """Consecutive blocks of a batch for one process.

    Attributes:
        batch: The batch's id.
        place: The batch's number in its mailbox.
        first: The position of the first block in the batch.
        end: The position after the last block.
    """

    batch: int
    place: int
    first: int
    end: int

    @property
    def positions(self) -> range:
        """The positions of the blocks."""
        return range(self.first, self.end)


class Done(NamedTuple):
    """A block that a helper ran, and the number of its result in the mailbox of results, or `FAILED`."""

    batch: int
    position: int
    result: int


class Shared:
    """Queues and memory that the run's process shares with its helpers; an idle process takes a share from `shares`.

    Attributes:
        shares: The blocks to run.
        done: The blocks that helpers ran.
        batches: The batches of these blocks.
        broadcasts: The server's broadcasts.
        results: The results of helpers: a block's return value in its plain form, the text that it printed, and the
            embeddings that it computed. The run's process prints the text in the order of blocks. A helper does not
            print: it would break a progress display, whose locks a thread may have held at the fork.
        taken: A byte for each number of `results`, `ROOM` for each helper: 1 until the run's process has read the
            result.
        dropped: The id of the last batch whose results are not needed any more, as the first of some integers.
    """

    def __init__(self, helpers: int) -> None:
        """Create queues and memory for a number of helpers."""
        self.shares, self.done = Queue(len(Share._fields)), Queue(len(Done._fields))
        self.batches, self.broadcasts, self.results = Mailbox(), Mailbox(), Mailbox()
        self.taken = mmap.mmap(-1, ROOM * max(1, helpers))
        self.dropped = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")

    def close(self) -> None:
        """Free queues and memory, once the helpers have ended."""
        for each in (self.shares, self.done, self.batches, self.broadcasts, self.results, self.taken):
            each.close()
        self.dropped.release()


def results(worker: Worker, batch: Batch, share: Share, received: Tensors) -> Iterator[Any]:
    """Run the blocks of a share, one after another, and yield their results."""
    tasks = batch.tasks[share.first : share.end]
    if batch.method == "train":
        return worker.train_each(tasks, received)
    return (worker.evaluate(task, received) for task in tasks)


def carried(embeddings: Sequence[Embedded]) -> tuple[Embedded, ...]:
    """Return the first embeddings, as many as fit into a message."""
    sizes = accumulate(each.embeddings.nbytes for each in embeddings)
    return tuple(each for each, size in zip(embeddings, sizes, strict=True) if size <= MOST_EMBEDDED)


def taken(text: StringIO) -> str:
    """Return the text that was written, and clear it."""
    if not text.tell():
        return ""
    written = text.getvalue()
    text.seek(0)
    text.truncate()
    return written


def wait(events: select.poll) -> list[tuple[int, int]]:
    """Return the events of a poll once there are any; poll actively at first, because a sleeping process wakes late."""
    end = perf_counter() + AWAKE
    while perf_counter() < end:
        if ready := events.poll(0):
            return ready
    return events.poll()


def run_helper(helper: int, job: Job, embeddings: EmbeddingCache, shared: Shared, parent: int) -> None:
    """Run blocks in this process, a fork, until its parent ends or kills it.

    Args:
        helper: The helper's number.
        job: The job of the blocks.
        embeddings: The parent's embeddings.
        shared: The queues and memory that the parent created before the fork.
        parent: The parent's process id.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    os.close(shared.shares.writer)
    # Interpreters and connections of the parent must not be used from two processes.
    worker = Worker(replace(job, storage=deepcopy(job.storage)), embeddings=embeddings)
    _Helper(helper, worker, shared).run()


class _Helper:
    def __init__(self, number: int, worker: Worker, shared: Shared) -> None:
        self._own, self._worker, self._shared = number * ROOM, worker, shared
        self._batch = Batch(-1, "train", (), -1, 0)
        self._broadcast: tuple[int, Tensors] = (-1, {})
        self._computed = list[Embedded]()  # embeddings that the parent does not have
        self._out, self._err = StringIO(), StringIO()
        worker.embeddings.on_computed = self._computed.append

    def run(self) -> None:
        """Run blocks, and capture the text that they print."""
        with redirect_stdout(self._out), redirect_stderr(self._err):  # until an error ends this process
            self._do_shares()

    def _do_shares(self) -> None:
        shares, idle = self._shared.shares, select.poll()
        idle.register(shares.reader, select.POLLIN)
        while True:
            try:
                message = shares.get()
            except EOFError:
                return
            if message is None:
                wait(idle)
            else:
                self._do(Share(*message))

    def _do(self, share: Share) -> None:
        """Run the blocks of a share; if one fails, the parent repeats it and the blocks after it, with their output."""
        positions = iter(share.positions)
        try:
            batch = self._batch_of(share)
            for value in results(self._worker, batch, share, self._received(batch)):
                number = self._written(value)
                self._shared.done.put([Done(share.batch, next(positions), number)])
                if share.batch <= self._shared.dropped[0]:
                    break
        except Exception:
            taken(self._out), taken(self._err)
            self._shared.done.put(Done(share.batch, position, FAILED) for position in positions)

    def _written(self, value: Any) -> int:
        """Write a block's result, and return its number."""
        number = self._shared.taken.find(b"\0", self._own, self._own + ROOM)
        content, arrays = plain_result(value)
        result = content, taken(self._out), taken(self._err), carried(self._computed)
        self._shared.results.write(number, result, arrays)
        self._shared.taken[number] = 1
        self._computed.clear()
        return number

    def _batch_of(self, share: Share) -> Batch:
        if self._batch.id != share.batch:
            sent, _ = self._shared.batches.read(share.place)
            self._batch = Batch.of(sent)
            assert self._batch.id == share.batch  # otherwise the batch was dropped and its place reused
            self._worker.learn(self._batch.embeddings)
        return self._batch

    def _received(self, batch: Batch) -> Tensors:
        if self._broadcast[0] != batch.broadcast:
            received = tensors_of(*self._shared.broadcasts.read(batch.broadcast_place))
            self._broadcast = batch.broadcast, read_only(received)
        return self._broadcast[1]
