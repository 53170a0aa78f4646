"""The backend that runs blocks in this process and its forks, one for each further core."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from odt_sim._support.system import cores
from odt_sim.device.engines import RuntimeChoice, RuntimeName
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.messages import Messages
from odt_sim.simulation.processes.crew import Crew, Sent
from odt_sim.simulation.processes.helper import Method
from odt_sim.simulation.serial import SerialBackend
from odt_sim.simulation.sums import add

AHEAD = 8
"""The number of blocks per process that are sent before their results are taken; this limits the results in memory."""

TOGETHER = 4
"""The number of results that are added at once."""

FRACTION = 0.8
"""The fraction of the remaining blocks that are divided into one share for each process; see `in_shares`."""

MOST_AT_A_TIME = 8
"""The maximum number of devices of blocks that a process trains at a time, so that they are prepared together."""

CAN_FORK = sys.platform == "linux"
"""Whether forks of this process can run devices: macOS libraries may crash in a fork that starts no new program."""


class ProcessesBackend:
    """A backend with a process for each core; the processes share the blocks of a round.

    Attributes:
        alone: The backend with the worker of this process.
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
        self._opened: tuple[Job, Crew] | None = None

    def start(self) -> None:
        """Do nothing."""

    def open(self, job: Job) -> None:
        """Make the workers.

        Raises:
            FileError: The run's storage cannot be written.
            ConfigurationError: Devices have a time limit, or this system is not Linux.
            SimulationError: See `start_helpers`.
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
        self.alone.open(job)
        self.start_helpers(job)

    def start_helpers(self, job: Job) -> None:
        """Fork the helpers for the job that `alone` has opened.

        Raises:
            SimulationError: The system refuses a further process, or the run's storage is only visible to this process.
        """
        if self.processes > 1 and job.storage.where("").startswith("memory:"):
            raise SimulationError(
                f"run.storage: only this process can access {job.storage.where('')}; choose another storage, or "
                "backend=serial"
            )
        self.alone.worker.make_files()
        self._opened = job, Crew(job, self.alone.worker, self.processes - 1)

    def end_helpers(self) -> None:
        """End the helpers; the job stays open in `alone`."""
        if self._opened:
            self._opened[1].close()
        self._opened = None

    def train(self, tasks: Sequence[Task], messages: Messages) -> Iterator[Trained]:
        """Start to train blocks, and return their results, or only their sum if nothing more is needed."""
        job, _ = self._job()
        keeps_updates = job.strategy.keeps_updates or job.effective_aggregator.keeps_updates
        on_clock = any(task.saves is not None for task in tasks)  # a round on the clock sums blocks of several calls
        if keeps_updates or on_clock:
            return self._run("train", tasks, messages)
        parts = self._run("train", tasks, messages, views=TOGETHER)

        def total() -> Iterator[Trained]:
            total = Trained()
            for left in range(len(tasks), 0, -TOGETHER):
                add(total, *islice(parts, min(left, TOGETHER)))
            yield from parts  # yields nothing, but lets the iterator finish
            yield total

        return total()

    def evaluate(self, tasks: Sequence[Task], messages: Messages) -> Iterator[list[Row]]:
        """Start to evaluate blocks."""
        return self._run("evaluate", tasks, messages)

    def drop(self) -> None:
        """Drop all blocks that were sent and have not begun, because the run has stopped."""
        self._job()[1].drop()

    def close(self) -> None:
        """End the helpers and drop the worker."""
        self.end_helpers()
        self.alone.close()

    def _job(self) -> tuple[Job, Crew]:
        if self._opened is None:
            raise SimulationError("backend processes: no job is open; call open first")
        return self._opened

    def _run(self, method: Method, tasks: Sequence[Task], messages: Messages, *, views: int = 0) -> Iterator[Any]:
        """Send the first blocks, and return an iterator over the results of all blocks, in order.

        Args:
            method: The worker's method.
            tasks: The blocks.
            messages: What devices receive.
            views: The number of results whose large arrays are valid at the same time, as views of shared memory; 0 for
                copies.
        """
        job, crew = self._job()
        half = AHEAD * self.processes // 2
        costs = job.costs(tasks)
        # An evaluation prepares nothing, so it runs block by block.
        devices = [len(task.devices) if method == "train" else MOST_AT_A_TIME for task in tasks]
        shares = deque(in_shares(in_turn(costs, half), costs, devices, self.processes))
        sent: dict[int, tuple[Sent, int]] = {}

        def send(count: int) -> None:
            some = list[Sequence[int]]()
            while shares and sum(map(len, some)) < count:
                some.append(shares.popleft())
            if numbers := [*chain.from_iterable(some)]:
                addressed = [messages.addressed(tasks[number]) for number in numbers]
                batch = crew.send(method, addressed, messages.broadcast, [*map(len, some)])
                sent.update((number, (batch, position)) for position, number in enumerate(numbers))

        def results() -> Iterator[Any]:
            kept = deque[Iterator[Any]]()
            for number in range(len(tasks)):
                if len(kept) == max(1, views):
                    end(kept.popleft())
                kept.append(crew.result(*sent.pop(number), view=views > 0))
                yield next(kept[-1])
                if len(sent) == half:
                    send(half)
            for taken in kept:
                end(taken)

        def end(taken: Iterator[Any]) -> None:
            """Free the memory of a result."""
            for _ in taken:
                pass

        send(2 * half)
        return results()


def in_turn(costs: Sequence[float], last: int) -> list[int]:
    """Return the order in which to begin blocks: the last ones by descending cost, so that processes end together.

    Args:
        costs: The cost of each block, in any unit.
        last: The number of blocks to sort by cost; earlier blocks keep their order, in which results are taken.
    """
    first = max(0, len(costs) - last)
    return [*range(first), *sorted(range(first, len(costs)), key=lambda number: -costs[number])]


def in_shares(order: Sequence[int], costs: Sequence[float], devices: Sequence[int], processes: int) -> list[list[int]]:
    """Divide blocks into shares that one process runs at a time: large ones first, single blocks at the end.

    A fraction of the blocks is divided among the processes, then the same fraction of the others, and so on, so that
    processes end together although they differ in speed: factoring, by Hummel, Schonberg and Flynn 1992, Factoring: A
    Method for Scheduling Parallel Loops.

    Args:
        order: The numbers of the blocks in the order in which they begin.
        costs: The cost of each block, in any unit.
        devices: The number of devices in each block.
        processes: The number of processes.
    """
    shares, left = list[list[int]](), sum(costs)
    most = cost = 0.0  # of the current share
    held = 0
    for number in order:
        if not shares or cost + costs[number] > most or held + devices[number] > MOST_AT_A_TIME:
            left -= cost
            if len(shares) % processes == 0:
                most = FRACTION * left / processes
            shares.append([])
            cost, held = 0.0, 0
        shares[-1].append(number)
        cost += costs[number]
        held += devices[number]
    return shares
