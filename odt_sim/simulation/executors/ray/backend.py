"""The backend that runs blocks in Ray actors, on one machine or on a cluster."""

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.runtime_env import RuntimeEnv

from odt_sim._support.text import first_line
from odt_sim._support.user_code import is_users
from odt_sim.device.engines import FLEX_MEMORY, RuntimeChoice, RuntimeName
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.model.reading.verification import memory_needed
from odt_sim.model.tensors import read_only, size_of
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job, Task
from odt_sim.simulation.executors.ray.actors import Actors
from odt_sim.simulation.executors.ray.calls import Calls, OwnActors, SharedActors
from odt_sim.simulation.executors.ray.capacity import (
    WORKER_MEMORY,
    Resources,
    check_memory,
    check_room,
    free_places,
    node_resources,
    places,
    wait_for_room,
)
from odt_sim.simulation.executors.ray.cluster import is_callers, join_cluster, session
from odt_sim.simulation.executors.ray.node_check import Expected, check_node, credentials, expect, withdraw
from odt_sim.simulation.executors.worker import Worker
from odt_sim.simulation.run.code import check_classes, imported_digests
from odt_sim.simulation.run.cohort import LARGEST_BLOCK
from odt_sim.simulation.run.messages import Assignment
from odt_sim.simulation.run.sums import joined
from odt_sim.strategies.base import Tensors

RESERVED = {
    "CPU": "use backend.num_cpus",
    **dict.fromkeys(("GPU", "memory", "object_store_memory"), "actors do not use it"),
}


LoadedCode = Mapping[str, Any]
"""The import specifications of the user's modules, by name; `importlib.reload` and a new import create another one."""

LARGEST_INLINE = 50_000
"""The most bytes of a broadcast that each call carries; the object store takes longer.

Ray sends arguments below 100 kB directly.
"""


CALLS_PER_CPU = 2
"""The calls of dedicated actors in flight for each CPU, so that CPUs never wait for the coordinator."""


class _Host:
    """An actor: a worker that fetches its job from the object store."""

    _worker: Worker
    _broadcast: Tensors
    _round: Any = None  # the reference of the fetched broadcast

    def setup(
        self, path: list[str], environment: Mapping[str, str], references: list[Any], classes: Mapping[str, str]
    ) -> str:
        """Check the node, fetch the job, and return the node's id."""
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # OpenBLAS' idle threads would spin
        os.environ.update(environment)  # before the storage is unpickled
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]  # to find a user's own modules
        expected, *job = references
        check_node(ray.get(expected))
        settings, data = ray.get(job)
        fetched = Job(data=data, **settings)
        check_classes(fetched, classes)
        self._worker = Worker(fetched, replaceable=True)
        return ray.get_runtime_context().get_node_id()

    def work(self, call: tuple[Sequence[Task], Any]) -> list[Any]:
        """Run blocks; a large broadcast is passed as a reference, so that it is fetched once per round, not per call."""
        tasks, broadcast = call
        if not isinstance(broadcast, ray.ObjectRef):
            return [self._worker.run(task, read_only(broadcast)) for task in tasks]
        if broadcast != self._round:
            self._round, self._broadcast = broadcast, ray.get(broadcast)
        return [self._worker.run(task, self._broadcast) for task in tasks]


@dataclass
class _Idle:
    """Actors without a job, the resources that each reserves, and the user's code that they may have imported."""

    reserved: Resources
    code: LoadedCode
    actors: list[Any]


_idle: dict[str, _Idle] = {}
"""The actors that later jobs of this process reuse, by Ray session."""


def _put(settings: Mapping[str, Any]) -> Any:
    """Put a job's settings into the object store and return the reference.

    Raises:
        SimulationError: An object of the user cannot be sent to other processes.
    """
    try:
        return ray.put(settings)
    except TypeError as error:
        own = ("strategy", "aggregator", "attack")
        named = next((f"{each} {settings[each].name}" for each in own if not _is_sent(settings[each])), "metrics")
        raise SimulationError(
            f"{named}: cannot be sent to Ray's actors: {error.__cause__}; create such objects in the method that uses them, "
            "or use backend=processes"
        ) from error


def _is_sent(value: Any) -> bool:
    try:
        ray.put(value)
    except TypeError:
        return False
    return True


def _end(actors: Iterable[Any]) -> None:
    """Kill actors, which frees the resources that they reserve."""
    for actor in actors:
        ray.kill(actor)


class RayBackend(Executor):
    """Actors that each host many devices, or one device each."""

    def __init__(
        self,
        address: str = "local",
        actors: int | None = None,
        devices_per_actor: Literal[1, "auto"] = "auto",
        num_cpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        runtime: RuntimeName = "litert",
        runtime_python: str | None = None,
    ) -> None:
        """Check the settings; start nothing.

        Args:
            address: `local` starts Ray for this process and its later runs; `auto` or `host:port` joins a running
                cluster.
            actors: The number of actors; None for as many as fit. With `devices_per_actor=1` there is one for each device,
                and this number is ignored.
            devices_per_actor: `auto`, or 1 for an actor with an interpreter and a checkpoint for each device.
            num_cpus: The CPUs that each actor reserves, which may be a fraction; None for 1, for fewer if `actors`
                exceeds the CPUs of a local Ray, and for 0 with `devices_per_actor=1`.
            resources: Custom resources of the cluster that each actor reserves, by name.
            runtime_env: Ray's runtime environment for all processes of the job.
            runtime: The runtime of the model's file: `litert`, LiteRT's interpreter; `compiled`, LiteRT's compiled
                model; `flex`, TensorFlow's interpreter with Flex ops, in an extra process for each actor.
            runtime_python: For `flex`, the Python of an environment with TensorFlow 2.19 on every node; None for the
                variable `ODT_SIM_FLEX_PYTHON`.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        check_settings(address, actors, devices_per_actor, num_cpus, resources, runtime_env)
        self.runtime = RuntimeChoice(runtime, runtime_python)
        self._local = address == "local"
        self.address, self.actors, self.devices_per_actor = address, actors, devices_per_actor
        self.num_cpus, self.resources, self.runtime_env = num_cpus, dict(resources or {}), dict(runtime_env or {})
        self._actors = Actors(self._actor, ())
        self._expected: Expected | None = None
        self._most_running = 0
        self._places = 0  # actors that fit on the nodes, as last counted
        self._job: Job | None = None
        self._sent: tuple[Tensors, Any] | None = None  # the last broadcast; what calls carry: itself or its reference
        self._needs: Resources = {}
        self._code: LoadedCode = {}

    def start(self) -> None:
        """Start Ray or join a cluster, unless this process has done so before.

        Raises:
            SimulationError: No cluster answers at the address, its versions differ, or this process uses another
                cluster.
        """
        join_cluster(self.address, self.runtime_env)

    def open(self, job: Job) -> None:
        """Put the job into the object store once, and start the actors or reuse those of an earlier job.

        Raises:
            SimulationError: The actors do not fit on the nodes, or one dies repeatedly while it starts.
        """
        self.start()
        self._job = job
        nodes = node_resources()
        cpus = max(1, int(sum(node.get("CPU", 0) for node in nodes)))
        self._needs, count = self._reservation(job, cpus, nodes)
        self._most_running = CALLS_PER_CPU * (count if self.num_cpus else min(count, cpus))
        self._places = count
        idle = self._take_idle(count)
        if not self._local:
            missing = count - len(idle)
            least = int(not idle) if self._takes_what_fits else missing
            count = len(idle) + wait_for_room(self._needs, missing, least)
        self._expected = expect(job.storage)
        settings = {name: value for name, value in vars(job).items() if name != "data"}
        references = [ray.put(self._expected), _put(settings), ray.put(job.data)]  # workers map the arrays of the data
        self._actors = Actors(self._actor, (sys.path, credentials(job.storage), references, imported_digests(job)))
        self._actors.start(idle, count, at_once=cpus)  # more would only wait for CPUs

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run blocks on the actors, including new ones on nodes that joined the cluster; see `Executor`."""
        if self._job is None:
            raise SimulationError("backend ray: no job is open; call open first")
        if self._takes_what_fits:  # actors of dead nodes restart on nodes with free resources
            fitting = places(self._needs, node_resources())
            if fitting > self._places:
                added = min(fitting - self._places, free_places(self._needs))
                self._actors.add(added)
                self._places += added
        (tasks, messages), job = assignment, self._job
        if not self._dedicated:
            sizes = [len(task.devices) for task in tasks]
            shared = SharedActors(job.costs(tasks), sizes, len(self._actors.slots), LARGEST_BLOCK)
            calls = Calls(assignment, shared, self._carried(messages.broadcast), self._actors, job)
            for number in range(len(tasks)):
                take(calls.result(number))
            return
        single = [part for task in tasks for part in task.each()]
        own = OwnActors([part.devices[0] for part in single], self._most_running)
        calls = Calls(Assignment(single, messages), own, self._carried(messages.broadcast), self._actors, job)
        numbers = iter(range(len(single)))
        for task in tasks:
            take(joined(task, [calls.result(next(numbers)) for _ in task.devices]))

    def close(self) -> None:
        """Keep the actors for later jobs of this process; the actors and a local Ray end with the process.

        In a Ray that the caller started, the actors end now, because other work may wait for their CPUs.
        """
        if ray.is_initialized():
            idle = self._actors.close()
            if is_callers():
                _end(idle)
            else:
                _idle[session()] = _Idle(self._needs, self._code, idle)
        self._actors, self._job, self._sent = Actors(self._actor, ()), None, None
        if self._expected:
            withdraw(self._expected)
            self._expected = None

    @property
    def _dedicated(self) -> bool:
        return self.devices_per_actor == 1

    @property
    def _takes_what_fits(self) -> bool:
        """Whether the backend starts as many actors as fit on a cluster."""
        return self.actors is None and not self._local and not self._dedicated

    def _take_idle(self, most: int) -> list[Any]:
        """Return up to `most` idle actors with this job's reservation and the user's current code; kill the others."""
        # Actors keep the modules that they have imported, even after a reload here. Editing a file alone has no effect.
        specs = {name: getattr(module, "__spec__", None) for name, module in list(sys.modules.items())}
        now = {name: spec for name, spec in specs.items() if spec and is_users(str(spec.origin))}
        idle = _idle.pop(session(), _Idle(self._needs, {}, []))
        reloaded = any(now.get(name, spec) is not spec for name, spec in idle.code.items())
        fit = idle.reserved == self._needs and not reloaded
        kept = idle.actors[:most] if fit else []
        _end(idle.actors[len(kept) :])
        self._code = {**idle.code, **now} if kept else now
        return kept

    def _reservation(self, job: Job, cpus: int, nodes: list[Resources]) -> tuple[Resources, int]:
        """Return the resources that each actor reserves, and the number of actors."""
        if self._dedicated:
            needs, count = {"CPU": self.num_cpus or 0.0, **self.resources}, job.data.devices
            own = FLEX_MEMORY if job.runtime.runs_flex else memory_needed(job.model.content, job.model.where)
            check_memory(count, WORKER_MEMORY + own, nodes)
        elif self._local and self.num_cpus is None:
            count = self.actors or cpus
            needs = {"CPU": min(1.0, math.floor(1e4 * cpus / count) / 1e4)}
        else:
            needs = {"CPU": self.num_cpus or 1.0, **self.resources}
            count = self.actors or places(needs, nodes)
        check_room(needs, count, nodes)
        return needs, count

    def _actor(self) -> Any:
        custom = {name: amount for name, amount in self._needs.items() if name != "CPU"}
        options = {"num_cpus": self._needs["CPU"], "resources": custom, "scheduling_strategy": "SPREAD"}
        return ray.remote(_Host).options(**options).remote()

    def _carried(self, broadcast: Tensors) -> Any:
        """Return what calls carry: a small broadcast itself, or the reference of a large one, which is put once."""
        if self._sent is None or self._sent[0] is not broadcast:  # once per round, for evaluation and training
            self._sent = broadcast, broadcast if size_of(broadcast) <= LARGEST_INLINE else ray.put(broadcast)
        return self._sent[1]


def check_settings(
    address: Any, actors: Any, devices_per_actor: Any, num_cpus: Any, resources: Any, runtime_env: Any
) -> None:
    """Check the settings of `RayBackend`.

    Raises:
        ConfigurationError: A setting has the wrong type or is out of range.
    """
    if not isinstance(address, str) or not re.fullmatch(r"local|auto|.+:\d+", address):
        raise ConfigurationError(f"backend.address: expected local, auto or host:port, found {address!r}")
    if address.startswith("ray://"):
        raise ConfigurationError(
            f"backend.address={address}: Ray Client cannot access the memory of a node; run odt-sim on a node of the "
            "cluster with backend.address=auto, or by ray job submit"
        )
    if devices_per_actor not in (1, "auto"):
        raise ConfigurationError(f"backend.devices_per_actor: expected 1 or auto, found {devices_per_actor!r}")
    if actors is not None and not (isinstance(actors, int) and actors >= 1):
        raise ConfigurationError(f"backend.actors: expected at least 1 or null, found {actors}")
    if num_cpus is not None and not _is_amount(num_cpus):
        raise ConfigurationError(f"backend.num_cpus: expected a number above 0 or null, found {num_cpus!r}")
    if resources is not None:
        _check_resources(resources, local=address == "local")
    if runtime_env is not None:
        _check_runtime_env(runtime_env)


def _check_resources(resources: Any, *, local: bool) -> None:
    if not isinstance(resources, Mapping):
        raise ConfigurationError(f"backend.resources: expected {{name: amount}} or null, found {resources!r}")
    for name, amount in resources.items():
        if name in RESERVED:
            raise ConfigurationError(f"backend.resources: expected custom resources, found {name}; {RESERVED[name]}")
        if not _is_amount(amount):
            raise ConfigurationError(f"backend.resources.{name}: expected a number above 0, found {amount!r}")
    if resources and local:
        raise ConfigurationError(
            "backend.resources: expected null for backend.address=local, which only has CPUs, "
            f"found {', '.join(resources)}; give the address of a cluster"
        )


def _check_runtime_env(runtime_env: Any) -> None:
    if not isinstance(runtime_env, Mapping):
        raise ConfigurationError(f"backend.runtime_env: expected {{field: value}} or null, found {runtime_env!r}")
    fields = sorted(name for name in RuntimeEnv.known_fields if not name.startswith("_"))
    for name in runtime_env:
        if name not in fields:
            raise ConfigurationError(f"backend.runtime_env: unknown field {name}; expected one of {', '.join(fields)}")
    try:
        RuntimeEnv(**runtime_env)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"backend.runtime_env: {first_line(error)}") from error


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
