"""The backend that runs blocks in Ray actors, on one machine or on a cluster."""

import logging
import math
import os
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

os.environ.update(  # Ray reads some of these when it is imported
    {
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS_SKIP_REGEX": "^A worker died",  # we replace it, or end the run with one line
        "RAY_NUM_REDIS_GET_RETRIES": "1",  # with the next: what listens at an address but is no Ray fails within 20 s
        "RAY_py_gcs_connect_timeout_s": "8",
    }
    | os.environ  # what the user has set stays
)

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError, RayTaskError

from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError, OdtSimError, SimulationError
from odt_sim.simulation.block import Job, Task, Trained, Worker, join
from odt_sim.simulation.cohort import LARGEST_BLOCK
from odt_sim.simulation.evaluation import Row
from odt_sim.strategies.base import Tensors

Result = TypeVar("Result")
Method = Literal["train", "evaluate"]

TRIES = 3  # of a block or of starting an actor, before the run gives up
AHEAD = 2  # blocks given to an actor at once, so that it never waits for the coordinator
LOST = (RayActorError, ObjectLostError)  # what a dead worker or node leaves: its blocks are done again

SYSTEM = {
    # `open` starts actors in waves itself; Ray would warn of many actors, whether they start at once or not.
    "worker_maximum_startup_concurrency": 1000,
    # A result up to here goes straight to the coordinator: for a small model's sums that is half the cost of the store.
    "max_direct_call_object_size": 2 << 20,
}


class _Host:
    """An actor's inside: a worker whose job comes through the object store."""

    _worker: Worker
    _broadcast: Tensors
    _round: Any = None  # the reference of the broadcast that is here

    def setup(self, path: list[str], references: list[Any]) -> None:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its idle threads would spin
        # A strategy may be a user's own file, and a module is to be the same one here as it is there.
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
        settings, (name, classes), arrays = ray.get(references)
        self._worker = Worker(Job(data=FederatedData.from_arrays(name, classes, arrays), **settings))

    def work(self, method: Method, tasks: Sequence[Task], broadcast: list[Any]) -> list[Any]:
        """Does some blocks; the broadcast comes as a reference, so that it is fetched once a round and not once a call."""
        if broadcast[0] != self._round:
            self._round, self._broadcast = broadcast[0], ray.get(broadcast[0])
        return [getattr(self._worker, method)(task, self._broadcast) for task in tasks]


class RayBackend:
    """Actors that each host many devices, or one device each.

    Attributes:
        address: `local` for a Ray of its own, which later runs of this process use again; `auto` or `host:port` for a
            cluster that runs.
        actors: How many actors; None for one a CPU. With `devices_per_actor: 1` there is one a device.
        devices_per_actor: `auto`, or 1 for an actor, an interpreter and a checkpoint of its own for every device.
    """

    def __init__(
        self, address: str = "local", actors: int | None = None, devices_per_actor: Literal[1, "auto"] = "auto"
    ) -> None:
        """Starts nothing yet.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        if devices_per_actor not in (1, "auto"):
            raise ConfigurationError(f"backend.devices_per_actor: expected 1 or auto, found {devices_per_actor!r}")
        if actors is not None and actors < 1:
            raise ConfigurationError(f"backend.actors: expected at least 1 or null, found {actors}")
        self.address, self.actors, self.devices_per_actor = address, actors, devices_per_actor
        self._actors: list[Any] = []
        self._references: list[Any] = []
        self._most_running, self._cpus = 0, 1.0

    def start(self) -> None:
        """Starts Ray or joins a cluster, unless this process has done so before.

        Raises:
            SimulationError: No cluster answers at the address, or this process uses another one.
        """
        if ray.is_initialized():
            self._check_joined()
            return
        if ":" in self.address:
            _check_answers(self.address)
        own: dict[str, Any] = {
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_system_config": SYSTEM,
        }
        try:
            ray.init(
                address=self.address,
                log_to_driver=False,
                logging_level=logging.ERROR,  # what goes wrong reaches the user as an error of ours
                **(own if self.address == "local" else {}),
            )
        except (RayError, ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise SimulationError(
                f"backend.address={self.address}: cannot reach Ray ({_one_line(error)}); start a cluster, use local, "
                "or set RAY_AUTH_MODE=token where the cluster asks for its token"
            ) from error
        _addresses[_session()] = self.address

    def _check_joined(self) -> None:
        joined = _addresses.get(_session(), self.address)  # a Ray that the caller started will do
        if joined != self.address:
            raise SimulationError(
                f"backend.address={self.address}: this process uses the Ray at {joined} already, and can use one only; "
                "run them one by one"
            )

    def open(self, job: Job) -> None:
        """Puts the model and the data into the object store once, and gets the actors ready.

        Actors of an earlier job of this process are used again.

        Raises:
            SimulationError: An actor dies while it starts.
        """
        self.start()
        settings = {name: value for name, value in vars(job).items() if name != "data"}
        parts = (settings, (job.data.name, job.data.classes), job.data.arrays())
        self._references = [ray.put(part) for part in parts]
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        cpus = max(1, int(resources.get("CPU", 1)))
        count = job.data.devices if self._dedicated else self.actors or cpus
        self._most_running = AHEAD * min(count, cpus)
        # Actors of one device each take turns on the CPUs, so they reserve none; `_most_running` bounds them.
        self._cpus = 0.0 if self._dedicated else min(1.0, math.floor(1e4 * cpus / count) / 1e4)
        self._actors = _take_idle(self._cpus, count)
        for start in range(0, count, cpus):  # as many at once as there are CPUs: more would only wait
            wave = range(start, min(start + cpus, count))
            self._actors += [self._actor() for _ in wave if len(self._actors) < wave.stop]
            for slot, setup in [(slot, self._setup(self._actors[slot])) for slot in wave]:
                self._await(slot, setup)

    def train(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[Trained]:
        """Trains blocks on the actors."""
        return self._run("train", tasks, broadcast, join)

    def evaluate(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[list[Row]]:
        """Evaluates blocks on the actors."""
        return self._run("evaluate", tasks, broadcast, lambda parts: [row for rows in parts for row in rows])

    def close(self) -> None:
        """Leaves the actors to later jobs of this process; they and Ray end with it."""
        if ray.is_initialized() and self._actors:
            _leave_idle(self._cpus, self._actors)
        self._actors, self._references = [], []

    # --- actors ----------------------------------------------------------------------------------------------------

    @property
    def _dedicated(self) -> bool:
        return self.devices_per_actor == 1

    def _actor(self) -> Any:
        return ray.remote(_Host).options(num_cpus=self._cpus).remote()

    def _setup(self, actor: Any) -> Any:
        return actor.setup.remote(sys.path, self._references)

    def _await(self, slot: int, setup: Any) -> None:
        for left in reversed(range(TRIES)):
            try:
                _result(setup)
                return
            except LOST as error:
                if not left:
                    raise SimulationError(
                        f"backend ray: a worker died {TRIES} times while starting ({_one_line(error)}); "
                        "run it with backend=serial to see why"
                    ) from error
                self._actors[slot] = self._actor()
                setup = self._setup(self._actors[slot])
        raise AssertionError

    def _replace(self, slot: int, dead: Any) -> None:
        """Starts an actor in the place of a dead one, unless another of its blocks has led to that before."""
        if self._actors[slot] is dead:
            self._actors[slot] = self._actor()
            self._await(slot, self._setup(self._actors[slot]))

    # --- blocks ----------------------------------------------------------------------------------------------------

    def _run(
        self, method: Method, tasks: Sequence[Task], broadcast: Tensors, combine: Callable[[list[Any]], Result]
    ) -> Iterator[Result]:
        if not self._dedicated:
            calls = _calls(tasks, len(self._actors))
            for results in self._in_order(method, calls, ray.put(broadcast)):
                yield from results
            return
        calls = [(part,) for task in tasks for part in task.each()]
        each = (result for results in self._in_order(method, calls, ray.put(broadcast)) for result in results)
        for task in tasks:
            yield combine([next(each) for _ in task.devices])

    def _in_order(self, method: Method, calls: Sequence[Sequence[Task]], broadcast: Any) -> Iterator[list[Any]]:
        """Yields the calls' results in their order, whatever the order in which actors finish or die."""
        waiting = deque(range(len(calls)))
        running: dict[Any, tuple[int, int, Any]] = {}
        done: dict[int, list[Any]] = {}
        tries = Counter[int]()
        for wanted in range(len(calls)):
            while wanted not in done:
                self._submit(method, calls, broadcast, waiting, running)
                [reference], _ = ray.wait(list(running), num_returns=1)
                index, slot, actor = running.pop(reference)
                try:
                    done[index] = _result(reference)
                except LOST as error:
                    tries[index] += 1
                    if tries[index] == TRIES:
                        raise _gave_up(calls[index], error) from error
                    self._replace(slot, actor)
                    waiting.appendleft(index)
            yield done.pop(wanted)

    def _submit(
        self,
        method: Method,
        calls: Sequence[Sequence[Task]],
        broadcast: Any,
        waiting: deque[int],
        running: dict[Any, Any],
    ) -> None:
        """Gives actors as many calls as they may have under way."""
        load = Counter(slot for _, slot, _ in running.values())
        while waiting and len(running) < self._most_running:
            index = waiting.popleft()
            first = calls[index][0].devices[0]
            slot = first if self._dedicated else min(range(len(self._actors)), key=lambda s: load[s])
            load[slot] += 1
            actor = self._actors[slot]
            running[actor.work.remote(method, calls[index], [broadcast])] = index, slot, actor


def _calls(tasks: Sequence[Task], actors: int) -> list[Sequence[Task]]:
    """Cuts tasks into calls, large ones first so that there are few, single ones last so that no actor waits long.

    Polychronopoulos and Kuck 1987, Guided Self-Scheduling: each call is a fraction of what is left.
    """
    calls: list[Sequence[Task]] = []
    left = list(tasks)
    while left:
        size = max(1, min(math.ceil(len(left) / (AHEAD * actors)), LARGEST_BLOCK // len(left[0].devices)))
        calls.append(left[:size])
        left = left[size:]
    return calls


_addresses: dict[str, str] = {}  # by Ray session: the address that was asked for
_idle: dict[str, tuple[float, list[Any]]] = {}  # by Ray session: the CPUs that each reserves, and actors without a job


def _take_idle(cpus: float, count: int) -> list[Any]:
    """Returns the idle actors where they are `count` that reserve `cpus` each; ends them otherwise."""
    reserved, actors = _idle.pop(_session(), (cpus, []))
    if (reserved, len(actors)) == (cpus, count):
        return actors
    for actor in actors:
        ray.kill(actor)
    return []


def _leave_idle(cpus: float, actors: list[Any]) -> None:
    _idle[_session()] = cpus, actors


def _session() -> str:
    return str(ray.get_runtime_context().get_session_name())


def _result(reference: Any) -> Any:
    """Returns a call's result, or raises what it raised there."""
    try:
        return ray.get(reference)
    except LOST:
        raise
    except RayTaskError as error:
        if isinstance(error.cause, OdtSimError):
            raise error.cause from None
        raise SimulationError(
            f"backend ray: a worker failed with {type(error.cause).__name__}: {_one_line(error.cause)}; "
            "run it with backend=serial to debug it"
        ) from error
    except RayError as error:
        raise SimulationError(
            f"backend ray: {type(error).__name__}: {_one_line(error)}; look at Ray's own logs"
        ) from error


def _check_answers(address: str) -> None:
    """Fails within seconds, where Ray would try for minutes, if nothing listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            pass
    except (OSError, ValueError, OverflowError) as error:
        raise SimulationError(
            f"backend.address={address}: nothing answers there ({_one_line(error)}); give a Ray head, auto or local"
        ) from error


def _gave_up(tasks: Sequence[Task], error: Exception) -> SimulationError:
    first, last = tasks[0].devices[0], tasks[-1].devices[-1]
    devices = f"device {first}" if first == last else f"devices {first}..{last}"
    return SimulationError(
        f"backend ray: workers died {TRIES} times on {devices} in round {tasks[0].round} ({_one_line(error)}); "
        "check memory, or run it with backend=serial"
    )


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
