"""A fork of the run's process that works on blocks until that ends."""

import ctypes
import gc
import mmap
import os
import select
import signal
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, replace
from io import StringIO
from time import perf_counter
from typing import Any, Literal, NamedTuple

from odt_sim.model.tensors import read_only
from odt_sim.simulation.job import Job, Task
from odt_sim.simulation.processes.mailbox import Mailbox
from odt_sim.simulation.processes.queue import ROOM, Queue
from odt_sim.simulation.worker import Worker
from odt_sim.strategies.base import Tensors

Method = Literal["train", "evaluate"]

FAILED = -1
"""In place of the number of a result: the block failed in the helper."""

AWAKE = 0.002
"""The seconds for which an idle process stays awake; a round of tiny devices begins a millisecond after the last one."""

PR_SET_PDEATHSIG = 1  # https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html


@dataclass(frozen=True)
class Batch:
    """Blocks that are sent together.

    Attributes:
        id: A number that no other batch of the job has.
        method: The worker's method.
        tasks: The blocks.
        broadcast: A number that no other broadcast of the job has.
        broadcast_place: The number of the broadcast in its mailbox.
    """

    id: int
    method: Method
    tasks: Sequence[Task]
    broadcast: int
    broadcast_place: int


class Block(NamedTuple):
    """A block to do: its batch, the number of that in its mailbox, and the block's position in it."""

    batch: int
    place: int
    position: int


class Done(NamedTuple):
    """A block that a helper did, and the number of its result in the mailbox of results, or `FAILED`."""

    batch: int
    position: int
    result: int


class Result(NamedTuple):
    """What a block returned in a helper, and what it printed, which the run's process prints in the order of blocks.

    A helper does not print itself: it would tear a progress display, whose locks a thread may have held at the fork.
    """

    value: Any
    out: str
    err: str


class Shared:
    """What the run's process shares with its helpers; each takes a block from `blocks` when it is idle.

    Attributes:
        blocks: The blocks to do.
        done: The blocks that helpers did.
        batches: The batches of these blocks.
        broadcasts: What the server sends.
        results: The results of helpers.
        taken: A byte for each number of `results`, `ROOM` for each helper: 1 until the run's process has read the result.
    """

    def __init__(self, helpers: int) -> None:
        """Create all, for a number of helpers."""
        self.blocks, self.done = Queue(len(Block._fields)), Queue(len(Done._fields))
        self.batches, self.broadcasts, self.results = Mailbox(), Mailbox(), Mailbox()
        self.taken = mmap.mmap(-1, ROOM * max(1, helpers))

    def close(self) -> None:
        """Give everything back, once the helpers have ended."""
        for each in (self.blocks, self.done, self.batches, self.broadcasts, self.results, self.taken):
            each.close()


def wait(events: select.poll) -> list[tuple[int, int]]:
    """Return the events of a poll once there are some: at once while a round ends, as a process that sleeps wakes late."""
    end = perf_counter() + AWAKE
    while perf_counter() < end:
        if ready := events.poll(0):
            return ready
    return events.poll()


def run_helper(helper: int, job: Job, shared: Shared, parent: int) -> None:
    """Do blocks in this process, a fork, until its parent ends or kills it.

    Args:
        helper: The helper's number.
        job: The job of the blocks.
        shared: What the parent made before the fork.
        parent: The parent's process id.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    gc.freeze()  # a collection would copy the pages that the processes share
    os.close(shared.blocks.writer)
    # Interpreters and connections of the parent must not be used from two processes.
    _Helper(helper, Worker(replace(job, storage=deepcopy(job.storage))), shared).run()


class _Helper:
    def __init__(self, number: int, worker: Worker, shared: Shared) -> None:
        self._own, self._worker, self._shared = number * ROOM, worker, shared
        self._batch = Batch(-1, "train", (), -1, 0)
        self._broadcast: tuple[int, Tensors] = (-1, {})

    def run(self) -> None:
        """Do blocks."""
        blocks, done, idle = self._shared.blocks, self._shared.done, select.poll()
        idle.register(blocks.reader, select.POLLIN)
        while True:
            try:
                message = blocks.get()
            except EOFError:
                return
            if message is None:
                wait(idle)
            else:
                block = Block(*message)
                done.put([Done(block.batch, block.position, self._result(block))])

    def _result(self, block: Block) -> int:
        """Do a block and return the number of its result."""
        try:
            batch = self._batch_of(block)
            received = self._received(batch)
            with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
                value = getattr(self._worker, batch.method)(batch.tasks[block.position], received)
            number = self._shared.taken.find(b"\0", self._own, self._own + ROOM)
            self._shared.results.write(number, Result(value, out.getvalue(), err.getvalue()))
        except Exception:  # the parent does the block again, and raises what it raises there
            return FAILED
        self._shared.taken[number] = 1
        return number

    def _batch_of(self, block: Block) -> Batch:
        if self._batch.id != block.batch:
            self._batch = self._shared.batches.read(block.place)
            assert self._batch.id == block.batch  # else it was dropped, and its place used again
        return self._batch

    def _received(self, batch: Batch) -> Tensors:
        if self._broadcast[0] != batch.broadcast:
            received: dict[str, Any] = self._shared.broadcasts.read(batch.broadcast_place)
            self._broadcast = batch.broadcast, read_only(received)
        return self._broadcast[1]
