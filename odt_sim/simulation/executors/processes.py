"""The backend that runs blocks in this process and its forks, one for each further core."""

import ctypes
import fcntl
import gc
import multiprocessing
import os
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from io import StringIO
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import numpy as np

from odt_sim._support.system import PR_SET_PDEATHSIG, cores
from odt_sim.device.embedding_cache import Embedded, EmbeddingCache
from odt_sim.device.engines import RuntimeChoice, RuntimeName
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.model.tensors import read_only
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job, Task
from odt_sim.simulation.executors.pipes import Packed, receive, send
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.simulation.executors.shares import in_shares
from odt_sim.simulation.executors.worker import Worker
from odt_sim.simulation.run.messages import Assignment
from odt_sim.strategies.base import Tensors

MOST_DEVICES = 8
"""The maximum number of devices in a share of several blocks, whose results are in memory until earlier ones arrive."""

PATIENCE = 2.0
"""The seconds between two looks whether a helper is stopped; after the second, it is killed."""

CAN_FORK = sys.platform == "linux"
"""Whether forks of this process can run devices: macOS libraries may crash in a fork that starts no new program."""


class ProcessesBackend(Executor):
    """A backend with a process for each core; the processes share the blocks of a round.

    Attributes:
        alone: The backend with the worker of this process.
        processes: The number of processes, including this one.
    """

    def __init__(
        self, processes: int | None = None, runtime: RuntimeName = "litert", runtime_python: str | None = None
    ) -> None:
        """Check the settings; start nothing.

        Args:
            processes: The number of processes, including this one; None for the cores that this process may use, or
                those of a container's CPU limit.
            runtime: The runtime of the model's file: `litert`, LiteRT's interpreter; `compiled`, LiteRT's compiled
                model; `flex`, TensorFlow's interpreter with Flex ops, in an extra process for each process that runs
                devices.
            runtime_python: For `flex`, the Python of an environment with TensorFlow 2.19; None for the variable
                `ODT_SIM_FLEX_PYTHON`.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        if processes is not None and (isinstance(processes, bool) or not isinstance(processes, int) or processes < 1):
            raise ConfigurationError(f"backend.processes: expected null or a number of at least 1, found {processes!r}")
        self.runtime = RuntimeChoice(runtime, runtime_python)
        self.processes = processes or (cores() if CAN_FORK else 1)
        self.alone = SerialBackend(runtime, runtime_python)
        self._opened: tuple[Job, Helpers] | None = None

    def open(self, job: Job) -> None:
        """Make the workers.

        Raises:
            FileError: The run's storage cannot be written.
            ConfigurationError: Devices have a time limit, or this system is not Linux.
            SimulationError: The system refuses a further process, or the run's storage is only visible to this process.
        """
        if not CAN_FORK:
            raise ConfigurationError(
                "backend: processes runs only on Linux; use backend=ray, which uses all cores, or serial"
            )
        if job.fleet.timeout is not None:
            raise ConfigurationError(
                f"fleet.timeout: expected null with backend=processes, found {job.fleet.timeout:g}; only Ray "
                "replaces a worker that must be killed: use backend=ray, or serial"
            )
        if self.processes > 1 and job.storage.where("").startswith("memory:"):
            raise SimulationError(
                f"run.storage: only this process can access {job.storage.where('')}; choose another storage, or "
                "backend=serial"
            )
        self.alone.open(job)
        self.alone.worker.make_files()
        self._opened = job, Helpers(self.processes - 1, job, self.alone.worker.embeddings)

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run blocks in all processes; see `Executor`.

        A block that fails is repeated here when its result is due, so that errors are the same as in a run in one
        process. If a helper ends, this process continues alone.
        """
        if self._opened is None:
            raise SimulationError("backend processes: no job is open; call open first")
        (job, helpers), worker = self._opened, self.alone.worker
        received = read_only(assignment.messages.broadcast)
        tasks = [assignment.messages.addressed(task) for task in assignment.tasks]
        costs, devices = job.costs(tasks), [len(task.devices) for task in tasks]
        shares = in_shares(costs, devices, len(helpers) + 1, MOST_DEVICES)
        call = helpers.begin(tasks, shares, assignment.messages.broadcast)
        results, taken = dict[int, Result](), 0
        while taken < len(tasks):
            if taken in results:
                result = results.pop(taken)
                value = worker.run(tasks[taken], received) if result.failed else result.value
                for text, file in ((result.out, sys.stdout), (result.err, sys.stderr)):
                    if text and file:
                        file.write(text)
                worker.learn(result.embeddings)
                take(value)
                taken += 1
            elif (share := helpers.shares.take(call)) is not None:
                results |= {number: _tried(worker, tasks[number], received) for number in shares[share]}
                results |= helpers.results()
            elif len(helpers):
                results |= helpers.results(wait_for_one=True)
            else:  # a helper that ended had begun the block
                results[taken] = FAILED

    def close(self) -> None:
        """End the helpers and drop the worker."""
        self.end_helpers()
        self.alone.close()

    def end_helpers(self) -> None:
        """End the helpers; the job stays open in `alone`."""
        if self._opened:
            self._opened[1].close()
        self._opened = None


class Result(NamedTuple):
    """The outcome of a block.

    Attributes:
        value: What the worker returned.
        failed: Whether it raised an error; the block is then repeated in the run's process, which raises it again.
        out: What it printed in a helper, which does not print itself: it would break a progress display.
        err: The same for stderr.
        embeddings: The embeddings that it computed in a helper.
    """

    value: Any = None
    failed: bool = False
    out: str = ""
    err: str = ""
    embeddings: Sequence[Embedded] = ()


FAILED = Result(failed=True)


def _tried(worker: Worker, task: Task, broadcast: Tensors) -> Result:
    try:
        return Result(worker.run(task, broadcast))
    except Exception:
        return FAILED


@dataclass(frozen=True)
class Call:
    """Blocks that processes run together.

    Attributes:
        number: The call's number.
        tasks: The blocks.
        shares: The numbers of the blocks that one process runs at a time.
        broadcast: The server's broadcast.
        embeddings: The embeddings that other processes computed since the last call.
    """

    number: int
    tasks: Sequence[Task]
    shares: Sequence[Sequence[int]]
    broadcast: Tensors
    embeddings: Sequence[Embedded]


class ShareCounter:
    """The next share of a call; each is taken by one process.

    The kernel releases the lock of a process that is killed.
    """

    _STATE = struct.Struct("=qqq")  # the number of the call, its next share, and the number of its shares

    def __init__(self) -> None:
        """Make the counter."""
        self._file = os.memfd_create("odt_sim")

    def begin(self, call: int, shares: int) -> None:
        """Begin a call with a number of shares."""
        self._exchange(lambda state: (call, 0, shares))

    def take(self, call: int) -> int | None:
        """Return the number of the next share of a call; None if all have begun."""
        number, share, shares = self._exchange(lambda state: (state[0], state[1] + (state[0] == call), state[2]))
        return share if number == call and share < shares else None

    def close(self) -> None:
        """Close the counter in this process."""
        os.close(self._file)

    def _exchange(self, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> tuple[int, ...]:
        """Return the state, and replace it."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            state = self._STATE.unpack(os.pread(self._file, self._STATE.size, 0).ljust(self._STATE.size, b"\0"))
            os.pwrite(self._file, self._STATE.pack(*change(state)), 0)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        return state


class Helpers:
    """The forks of the run's process, each with a worker of its own.

    Attributes:
        shares: The shares of the last call that no process has begun.
    """

    def __init__(self, count: int, job: Job, embeddings: EmbeddingCache) -> None:
        """Fork the helpers.

        Args:
            count: Their number.
            job: The job.
            embeddings: The embeddings of this process.

        Raises:
            SimulationError: The system refuses a further process.
        """
        self.shares, self._calls = ShareCounter(), 0
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        self._computed = list[Embedded]()  # embeddings that helpers may lack
        self._embeddings = embeddings
        self._closed, self._was_stopped = Event(), False
        gc.freeze()  # a full collection would copy the pages that the processes share, which takes about 50 ms
        try:
            for _ in range(count):
                self._fork(job, embeddings.copy())
        except (OSError, AssertionError) as error:  # an AssertionError if the user's process is daemonic
            started = len(self._processes)
            self.close()
            raise SimulationError(
                f"backend processes: cannot start process {started + 2} ({error}); use backend=serial or fewer "
                "backend.processes"
            ) from error
        embeddings.on_computed = self._computed.append
        Thread(target=self._kill_stopped, args=[list(self._processes)], daemon=True).start()

    def __len__(self) -> int:
        """Return the number of living helpers."""
        return len(self._processes)

    def begin(self, tasks: Sequence[Task], shares: Sequence[Sequence[int]], broadcast: Tensors) -> int:
        """Send blocks, and return the number of the call; helpers begin at once."""
        self._calls += 1
        self.shares.begin(self._calls, len(shares))
        computed = list(self._computed)
        self._computed.clear()
        if not self._connections:
            return self._calls
        try:
            with Packed(Call(self._calls, tasks, shares, broadcast, computed)) as packed:
                for connection in self._connections:
                    with suppress(OSError):  # it has ended, which `results` notices
                        packed.send(connection)
        except OSError as error:  # no memory, or a limit of file sizes, as by `ulimit -f`
            self._end_after(f"cannot share memory ({error.strerror})")
        return self._calls

    def results(self, *, wait_for_one: bool = False) -> dict[int, Result]:
        """Return the results that helpers have sent, by the number of the block; end all helpers if one has ended.

        Args:
            wait_for_one: Whether to wait until there is a result, or no helper any more.
        """
        results = dict[int, Result]()
        while self._processes:
            sentinels = {process.sentinel: process for process in self._processes}
            ready = wait([*self._connections, *sentinels], None if wait_for_one and not results else 0)
            readable = [connection for connection in self._connections if connection in ready]
            for connection in readable:
                try:
                    number, result = receive(connection)
                except (EOFError, OSError):
                    continue
                copies = [each._replace(embeddings=np.array(each.embeddings)) for each in result.embeddings]
                self._computed += copies if len(self._processes) > 1 else []
                results[number] = result._replace(embeddings=copies)
            if ended := [process for file, process in sentinels.items() if file in ready]:
                ended[0].join()
                code = ended[0].exitcode or 0
                how = f"died of signal {-code}" if code < 0 else f"died with exit code {code}"
                self._end_after("was stopped" if self._was_stopped else how)
            elif not ready:
                break
        return results

    def close(self) -> None:
        """Kill the helpers, even while they work."""
        self._closed.set()
        self._end()
        self.shares.close()
        self._embeddings.on_computed = None
        gc.unfreeze()

    def _kill_stopped(self, processes: Sequence[BaseProcess]) -> None:
        """Kill helpers that stay stopped, as by SIGSTOP: this process may wait for their lock, result or empty pipe."""
        stopped = set[BaseProcess]()
        while not self._closed.wait(PATIENCE):
            with suppress(ValueError):  # they have ended
                still = {process for process in processes if _is_stopped(process)}
                for process in stopped & still:
                    self._was_stopped = True
                    process.kill()
                stopped = still

    def _fork(self, job: Job, embeddings: EmbeddingCache) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        inherited = [*self._connections, here]
        arguments = job, embeddings, self.shares, there, inherited, os.getpid()
        process = context.Process(target=run_helper, args=arguments, name="odt_sim helper", daemon=True)
        with warnings.catch_warnings():  # Python warns about forks of multithreaded processes; helpers need one thread
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        there.close()
        self._processes.append(process)
        self._connections.append(here)

    def _end_after(self, how: str) -> None:
        """End all helpers after one has ended or was stopped, so that no result arrives twice or late."""
        self._end()
        warnings.warn(
            f"backend processes: a process {how}; the run continues in one process, with the same results; "
            "provide more memory, or use fewer backend.processes",
            stacklevel=2,
        )

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []


def _is_stopped(process: BaseProcess) -> bool:
    """Return whether a process was stopped, as by SIGSTOP."""
    try:
        status = Path(f"/proc/{process.pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in "Tt"


def run_helper(
    job: Job,
    embeddings: EmbeddingCache,
    shares: ShareCounter,
    connection: Connection,
    inherited: Sequence[Connection],
    parent: int,
) -> None:
    """Run blocks in this process, a fork, until its parent ends or kills it.

    Args:
        job: The job of the blocks.
        embeddings: The parent's embeddings.
        shares: The shares to run.
        connection: Receives calls, and sends results.
        inherited: The parent's ends of connections.
        parent: The parent's process id.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    for parents_end in inherited:
        parents_end.close()
    # Interpreters and connections of the parent must not be used from two processes.
    worker = Worker(replace(job, storage=deepcopy(job.storage)), embeddings=embeddings)
    computed = list[Embedded]()
    worker.embeddings.on_computed = computed.append
    out, err = StringIO(), StringIO()
    # Until the parent or an error ends this process.
    with redirect_stdout(out), redirect_stderr(err), suppress(EOFError):
        while True:
            _run_call(worker, receive(connection), shares, connection, computed, (out, err))


def _run_call(
    worker: Worker,
    call: Call,
    shares: ShareCounter,
    connection: Connection,
    computed: list[Embedded],
    texts: tuple[StringIO, StringIO],
) -> None:
    """Run shares of a call until all have begun."""
    received = read_only(call.broadcast)
    worker.learn(call.embeddings)
    while (share := shares.take(call.number)) is not None:
        for block in call.shares[share]:
            result = _tried(worker, call.tasks[block], received)
            out, err = map(_taken, texts)
            if not result.failed:
                result = result._replace(out=out, err=err, embeddings=list(computed))
            computed.clear()
            try:
                send(connection, (block, result))
            except OSError:  # no memory, or a limit of file sizes (`ulimit -f`): the run's process repeats the block
                send(connection, (block, FAILED))


def _taken(text: StringIO) -> str:
    """Return the text that was written, and clear it."""
    written = text.getvalue()
    text.seek(0)
    text.truncate()
    return written
