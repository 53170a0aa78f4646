"""A process and its forks, which run blocks together."""

import gc
import multiprocessing
import os
import select
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from odt_sim.device.embedding_cache import Embedded
from odt_sim.errors import SimulationError
from odt_sim.model.tensors import read_only
from odt_sim.simulation.job import Job, Task
from odt_sim.simulation.processes.helper import (
    FAILED,
    Batch,
    Done,
    Method,
    Share,
    Shared,
    carried,
    results,
    run_helper,
    wait,
)
from odt_sim.simulation.processes.plain import plain_tensors, result_of
from odt_sim.simulation.processes.queue import ROOM
from odt_sim.simulation.worker import Worker
from odt_sim.strategies.base import Tensors


@dataclass
class Sent:
    """A batch that was sent and has results that are not taken yet.

    Attributes:
        batch: The batch.
        place: Its number in the mailbox.
        received: What its devices receive.
        left: The number of results that are not taken yet.
        here: The results of this process, by position.
        there: The numbers of helpers' results, or `FAILED` if a block failed, by position.
    """

    batch: Batch
    place: int
    received: Tensors
    left: int
    here: dict[int, Any] = field(default_factory=dict)
    there: dict[int, int] = field(default_factory=dict)

    def share(self, position: int) -> Share:
        """Return a share with a single block."""
        return Share(self.batch.id, self.place, position, position + 1)


class Crew:
    """A worker in this process, and one in each of its forks, the helpers.

    Each idle process takes the next share of blocks; this process does so while it waits for a result. A block that
    fails is repeated here, so that errors are the same as in a run in one process. If a helper dies, all helpers are
    ended, and this process continues alone.
    """

    def __init__(self, job: Job, worker: Worker, helpers: int) -> None:
        """Fork the helpers.

        Args:
            job: The job.
            worker: This process's worker.
            helpers: The number of helpers.

        Raises:
            SimulationError: The system refuses a further process.
        """
        self._job, self._worker = job, worker
        self._sent: dict[int, Sent] = {}
        self._unsent = deque[Share]()  # shares that wait for room in the queue
        self._in_flight = 0  # blocks that were sent and whose results are not taken yet
        self._batches = 0
        self._broadcast: tuple[int, int, Tensors] = (0, 0, {})  # number, place and tensors of the last broadcast
        self._embeddings = list[Embedded]()  # embeddings computed since the last batch
        self._helpers: list[BaseProcess] = []
        try:
            self._shared = Shared(helpers)
            self._events = select.poll()
            self._events.register(self._shared.done.reader, select.POLLIN)
            gc.freeze()  # a full collection would copy the pages that the processes share, which takes about 50 ms
            for number in range(helpers):
                self._start(number)
            worker.embeddings.on_computed = self._embeddings.append
        except (OSError, AssertionError) as error:  # an AssertionError if the user's process is daemonic
            self.close()
            raise SimulationError(
                f"backend processes: cannot start process {len(self._helpers) + 2} ({error}); use backend=serial or fewer "
                "backend.processes"
            ) from error
        except BaseException:
            self.close()
            raise

    def _start(self, number: int) -> None:
        arguments = number, self._job, self._worker.embeddings.copy(), self._shared, os.getpid()
        context = multiprocessing.get_context("fork")
        helper = context.Process(target=run_helper, args=arguments, name="odt_sim helper", daemon=True)
        with warnings.catch_warnings():  # Python warns about forks of multithreaded processes; helpers need one thread
            warnings.simplefilter("ignore", DeprecationWarning)
            helper.start()
        self._helpers.append(helper)
        self._events.register(helper.sentinel, select.POLLIN)

    def send(self, method: Method, tasks: Sequence[Task], broadcast: Tensors, sizes: Sequence[int]) -> Sent:
        """Send blocks; they begin as soon as a process is idle.

        Args:
            method: The worker's method.
            tasks: The blocks.
            broadcast: The server's broadcast.
            sizes: The numbers of consecutive blocks that a process runs at a time; their sum is the number of blocks.
        """
        place = _lowest_free({sent.place for sent in self._sent.values()})
        self._batches += 1
        batch = Batch(self._batches, method, tasks, *self._placed(broadcast), carried(self._embeddings))
        self._embeddings.clear()
        sent = self._sent[batch.id] = Sent(batch, place, read_only(broadcast), len(tasks))
        self._shared.batches.write(place, batch.plain())
        ends = list(accumulate(sizes))
        self._unsent.extend(Share(batch.id, place, *ends) for ends in zip([0, *ends], ends, strict=False))
        self._fill()
        return sent

    def result(self, sent: Sent, position: int, *, view: bool) -> Iterator[Any]:
        """Yield the result of a block, once.

        Args:
            sent: The block's batch.
            position: The block's position in the batch.
            view: Whether the large arrays of the result are views, valid only until this iterator is advanced.
        """
        while position not in sent.here and position not in sent.there:
            self._advance(sent, position)
        if position in sent.here:
            yield sent.here.pop(position)
        elif (number := sent.there[position]) == FAILED:
            yield self._do(sent, position)
        else:
            (value, out, err, embeddings), arrays = (self._shared.results.view if view else self._shared.results.read)(
                number
            )
            for text, file in ((out, sys.stdout), (err, sys.stderr)):
                if text and file:
                    file.write(text)
            self._learn(embeddings)
            yield result_of(value, arrays)
            self._free(number)
        self._in_flight -= 1
        sent.left -= 1
        if not sent.left:
            del self._sent[sent.batch.id]
        self._fill()

    def drop(self) -> None:
        """Drop the sent blocks, because their results are not needed; helpers finish the block that they have begun."""
        self._shared.dropped[0] = self._batches
        while self._shared.shares.get():
            pass
        self._unsent.clear()
        self._sent.clear()
        self._in_flight = 0

    def close(self) -> None:
        """Kill the helpers, even while they work, and drop all blocks."""
        self._end_helpers()
        gc.unfreeze()
        self._worker.embeddings.on_computed = None
        self._sent = {}
        if hasattr(self, "_shared"):
            self._shared.close()

    def _end_helpers(self) -> None:
        for helper in self._helpers:
            helper.kill()
        for helper in self._helpers:
            helper.join()
            helper.close()
        self._helpers = []

    def _placed(self, broadcast: Tensors) -> tuple[int, int]:
        """Write a broadcast, unless it equals the last one, and return its number and its place."""
        number, place, last = self._broadcast
        if broadcast.keys() != last.keys() or any(broadcast[name] is not last[name] for name in last) or not number:
            number, place = number + 1, _lowest_free({sent.batch.broadcast_place for sent in self._sent.values()})
            self._broadcast = number, place, dict(broadcast)
            self._shared.broadcasts.write(place, *plain_tensors(broadcast))
        return number, place

    def _fill(self) -> None:
        """Send blocks while there is room for their results."""
        if not self._unsent:
            return
        some = list[Share]()
        while self._unsent and self._in_flight + len(self._unsent[0].positions) <= ROOM:
            some.append(self._unsent.popleft())
            self._in_flight += len(some[-1].positions)
        self._shared.shares.put(some)

    def _advance(self, wanted: Sent, position: int) -> None:
        """Receive results; without any, run a share here; without any share, wait for a helper.

        Args:
            wanted: The batch of the block whose result is needed next.
            position: The block's position in it.
        """
        if self._receive():
            return
        if message := self._shared.shares.get():
            self._try(Share(*message))
        elif share := self._unsent_share(wanted, position):
            self._unsent.remove(share)  # later results take the room
            self._in_flight += len(share.positions)
            self._try(share)
        elif not self._helpers:  # a helper that died had taken the block
            self._try(wanted.share(position))
        else:
            ready = {file for file, _ in wait(self._events)}
            if dead := [helper for helper in self._helpers if helper.sentinel in ready]:
                self._go_on_alone(dead[0])

    def _unsent_share(self, sent: Sent, position: int) -> Share | None:
        """Return the unsent share with a block; None if it was sent."""
        own = (share for share in self._unsent if share.batch == sent.batch.id and position in share.positions)
        return next(own, None)

    def _go_on_alone(self, dead: BaseProcess) -> None:
        """End all helpers after one died, so that no result arrives twice or late, and scarce memory is freed."""
        dead.join()
        code = dead.exitcode or 0
        self._end_helpers()
        how = f"of signal {-code}" if code < 0 else f"with exit code {code}"
        warnings.warn(
            f"backend processes: a process died {how}; the run continues in one process, with the same results; "
            "provide more memory, or use fewer backend.processes",
            stacklevel=2,
        )

    def _receive(self) -> bool:
        """Receive the messages of helpers; return whether there were any."""
        some = False
        for message in self._shared.done.get_all():
            done, some = Done(*message), True
            if sent := self._sent.get(done.batch):
                sent.there[done.position] = done.result
            elif done.result != FAILED:
                self._free(done.result)  # its block was dropped
        return some

    def _try(self, share: Share) -> None:
        """Run blocks here; those that fail are repeated when their results are needed, to raise the first error."""
        sent, positions = self._sent[share.batch], iter(share.positions)
        try:
            for value in results(self._worker, sent.batch, share, sent.received):
                sent.here[next(positions)] = value
        except Exception:
            sent.there.update(dict.fromkeys(positions, FAILED))

    def _do(self, sent: Sent, position: int) -> Any:
        """Run a block here and return its result."""
        return next(results(self._worker, sent.batch, sent.share(position), sent.received))

    def _learn(self, embeddings: Sequence[Embedded]) -> None:
        """Copy the embeddings of a helper's result, which may be views, and send them to helpers with the next batch."""
        copies = [each._replace(embeddings=np.array(each.embeddings)) for each in embeddings]
        self._worker.learn(copies)
        if len(self._helpers) > 1:
            self._embeddings += copies

    def _free(self, result: int) -> None:
        """Let the helper reuse the memory of its result."""
        self._shared.taken[result] = 0


def _lowest_free(used: set[int]) -> int:
    """Return the lowest unused number."""
    return next(number for number in range(len(used) + 1) if number not in used)
