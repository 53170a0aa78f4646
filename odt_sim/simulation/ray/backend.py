"""The backend that runs blocks in Ray actors, on one machine or on a cluster."""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import ray

from odt_sim.model.verification import memory_needed
from odt_sim.simulation.cohort import LARGEST_BLOCK
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.ray.actors import Actors
from odt_sim.simulation.ray.calls import JOINED, Calls, Method
from odt_sim.simulation.ray.capacity import (
    WORKER_MEMORY,
    Resources,
    check_memory,
    check_room,
    node_resources,
    places,
    wait_for_room,
)
from odt_sim.simulation.ray.cluster import join_cluster
from odt_sim.simulation.ray.idle_actors import leave_idle, take_idle
from odt_sim.simulation.ray.node_check import Expected, check_node, expect, withdraw
from odt_sim.simulation.ray.schedule import AHEAD, OwnActors, Schedule
from odt_sim.simulation.ray.settings import check_settings
from odt_sim.simulation.worker import Worker
from odt_sim.strategies.base import Tensors


class _Host:
    """An actor's inside: a worker whose job comes through the object store."""

    _worker: Worker
    _broadcast: Tensors
    _round: Any = None  # the reference of the broadcast that is here

    def setup(self, path: list[str], references: list[Any], expected: Expected) -> None:
        """Gets the job."""
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its idle threads would spin
        check_node(expected)
        # A strategy may be a user's own file, and a module is to be the same one here as it is there.
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
        settings, data = ray.get(references)
        self._worker = Worker(Job(data=data, **settings), replaceable=True)

    def work(self, call: tuple[Method, Sequence[Task], Any]) -> list[Any]:
        """Does some blocks; the broadcast comes as a reference, so that it is fetched once a round and not once a call."""
        method, tasks, broadcast = call
        if broadcast != self._round:
            self._round, self._broadcast = broadcast, ray.get(broadcast)
        return [getattr(self._worker, method)(task, self._broadcast) for task in tasks]


class RayBackend:
    """Actors that each host many devices, or one device each.

    Attributes:
        address: `local` for a Ray of its own, which later runs of this process use again; `auto` or `host:port` for a
            cluster that runs.
        actors: How many actors; None for as many as there is room for. With `devices_per_actor: 1` there is one a device.
        devices_per_actor: `auto`, or 1 for an actor, an interpreter and a checkpoint of its own for every device, as many
            as there is memory for.
        num_cpus: The CPUs that each actor reserves, fractions too; None for 1, or less where `actors` are more than a
            Ray of its own has CPUs. Actors of one device each take turns on the CPUs: None is 0 for them.
        resources: More that each actor reserves, by the names that nodes of the cluster were started with.
        runtime_env: Ray's runtime environment of all processes of the job.
    """

    def __init__(
        self,
        address: str = "local",
        actors: int | None = None,
        devices_per_actor: Literal[1, "auto"] = "auto",
        num_cpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts nothing yet.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        self._local = address == "local"
        check_settings(actors, devices_per_actor, num_cpus, resources, runtime_env, local=self._local)
        self.address, self.actors, self.devices_per_actor = address, actors, devices_per_actor
        self.num_cpus, self.resources, self.runtime_env = num_cpus, dict(resources or {}), dict(runtime_env or {})
        self._actors = Actors(self._actor, ())
        self._expected: Expected | None = None
        self._most_running = 0
        self._job: Job | None = None
        self._sent: tuple[Tensors, Any] | None = None  # the last broadcast, and its reference
        self._needs: Resources = {}

    def start(self) -> None:
        """Starts Ray or joins a cluster, unless this process has done so before.

        Raises:
            SimulationError: No cluster answers at the address, its versions are others, or this process uses another one.
        """
        join_cluster(self.address, self.runtime_env)

    def open(self, job: Job) -> None:
        """Puts the model and the data into the object store once, and gets the actors ready.

        Actors of an earlier job of this process are used again.

        Raises:
            SimulationError: There is no room for the actors, or one dies while it starts.
        """
        self.start()
        settings = {name: value for name, value in vars(job).items() if name != "data"}
        references = [ray.put(part) for part in (settings, job.data)]  # of the data workers map the arrays
        self._job = job
        nodes = node_resources()
        cpus = max(1, int(sum(node.get("CPU", 0) for node in nodes)))
        self._needs, count = self._reservation(job, cpus, nodes)
        self._most_running = AHEAD * (count if self.num_cpus else min(count, cpus))
        idle = take_idle(self._needs, count)
        if not self._local:
            missing = count - len(idle)
            fewer = self.actors is None and not self._dedicated  # as many as there is room for
            count = len(idle) + wait_for_room(self._needs, missing, least=int(not idle) if fewer else missing)
        self._expected = expect(job.storage)
        self._actors = Actors(self._actor, (sys.path, references, self._expected))
        self._actors.start(idle, count, at_once=cpus)  # more would only wait for CPUs

    def train(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[Trained]:
        """Trains blocks on the actors."""
        return self._run("train", tasks, broadcast)

    def evaluate(self, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[list[Row]]:
        """Evaluates blocks on the actors."""
        return self._run("evaluate", tasks, broadcast)

    def close(self) -> None:
        """Leaves the actors to later jobs of this process; they and Ray end with it."""
        if ray.is_initialized():
            leave_idle(self._needs, self._actors.close())
        self._actors, self._job, self._sent = Actors(self._actor, ()), None, None
        if self._expected:
            withdraw(self._expected)
            self._expected = None

    # --- actors ----------------------------------------------------------------------------------------------------

    @property
    def _dedicated(self) -> bool:
        return self.devices_per_actor == 1

    def _reservation(self, job: Job, cpus: int, nodes: list[Resources]) -> tuple[Resources, int]:
        """Returns what each actor reserves, and how many actors there are."""
        if self._dedicated:
            needs, count = {"CPU": self.num_cpus or 0.0, **self.resources}, job.data.devices
            check_memory(count, WORKER_MEMORY + memory_needed(job.model.content, job.model.where), nodes)
        elif self._local and self.num_cpus is None:
            count = self.actors or cpus
            needs = {"CPU": min(1.0, math.floor(1e4 * cpus / count) / 1e4)}
        else:
            needs = {"CPU": self.num_cpus or 1.0, **self.resources}
            count = self.actors or places(needs, nodes)
        check_room(needs, count, nodes)
        return needs, count

    def _actor(self) -> Any:
        own = {name: amount for name, amount in self._needs.items() if name != "CPU"}
        options = {"num_cpus": self._needs["CPU"], "resources": own, "scheduling_strategy": "SPREAD"}
        return ray.remote(_Host).options(**options).remote()

    # --- blocks ----------------------------------------------------------------------------------------------------

    def _run(self, method: Method, tasks: Sequence[Task], broadcast: Tensors) -> Iterator[Any]:
        """Begins the tasks at once, and returns their results as they come."""
        assert self._job is not None
        if not self._dedicated:
            costs = [self._job.cost(task) for task in tasks]
            sizes = [len(task.devices) for task in tasks]
            schedule = Schedule(costs, sizes, len(self._actors.slots), LARGEST_BLOCK)
            return iter(self._begun(method, tasks, schedule, broadcast, self._job))
        single = [part for task in tasks for part in task.each()]
        own = OwnActors([part.devices[0] for part in single], self._most_running)
        each = iter(self._begun(method, single, own, broadcast, self._job))
        return (JOINED[method](list(islice(each, len(task.devices)))) for task in tasks)

    def _begun(
        self, method: Method, tasks: Sequence[Task], schedule: Schedule | OwnActors, broadcast: Tensors, job: Job
    ) -> Calls:
        if self._sent is None or self._sent[0] is not broadcast:  # once a round, be it to evaluate or to train
            self._sent = broadcast, ray.put(broadcast)
        return Calls(method, tasks, schedule, self._sent[1], self._actors, job)
