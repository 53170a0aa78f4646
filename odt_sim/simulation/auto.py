"""The backend that begins in this process, and goes on in Ray actors where that is faster."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal, NamedTuple

from odt_sim.daemon_threads import in_daemon_thread
from odt_sim.device.engines import RuntimeName
from odt_sim.simulation.backend import Backend
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.messages import Messages
from odt_sim.simulation.pace import Paces, Progress, saved
from odt_sim.simulation.serial import SerialBackend

Method = Literal["train", "evaluate"]

STARTING = 5.0  # seconds that Ray and its actors need, in which rounds are slower, on two cores
LOOKS_AFTER = 0.25  # seconds between two estimates

_start_seconds = STARTING  # less what actors would have saved of earlier jobs of this process, such as those of a sweep


def backend(
    address: str = "local",
    actors: int | None = None,
    devices_per_actor: Literal[1, "auto"] = "auto",
    num_cpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    runtime: RuntimeName = "litert",
    runtime_python: str | None = None,
) -> Backend:
    """Return the backend that chooses; with a setting of Ray's cluster or actors, the Ray backend.

    Args:
        address: As of the backend `ray`; other than `local` uses that backend from the start.
        actors: Likewise, other than null.
        devices_per_actor: Likewise, other than `auto`.
        num_cpus: Likewise, other than null.
        resources: Likewise, other than null.
        runtime_env: Likewise, other than null.
        runtime: What runs the model's file: `litert`, `compiled` or `flex`.
        runtime_python: For `flex`, the Python of an environment with TensorFlow 2.19; None for the variable
            `ODT_SIM_FLEX_PYTHON`.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    asked = (address, devices_per_actor) != ("local", "auto")
    if not asked and all(each is None for each in (actors, num_cpus, resources, runtime_env)):
        return AutoBackend(runtime, runtime_python)
    from odt_sim.simulation.ray import RayBackend

    return RayBackend(address, actors, devices_per_actor, num_cpus, resources, runtime_env, runtime, runtime_python)


class _Period(NamedTuple):
    """A round from its begin to that of the next one."""

    since: float
    cost: float
    on_actors: bool
    evaluates: bool


class AutoBackend:
    """This process until Ray has started, if that is worth it, and then the faster of the two.

    Results do not depend on where a block runs, so that the choice changes nothing but time. A job whose devices have a time
    limit runs on actors from the start: only they can be ended in native code.

    Attributes:
        choice: What ran the last job and the seconds that decided it; None before one was opened.
    """

    def __init__(self, runtime: RuntimeName = "litert", runtime_python: str | None = None) -> None:
        """Check the settings; start nothing.

        Args:
            runtime: As of `SerialBackend`.
            runtime_python: Likewise.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        self._settings: dict[str, Any] = {"runtime": runtime, "runtime_python": runtime_python}
        self._here = SerialBackend(**self._settings)
        self.runtime = self._here.runtime
        self._cores = len(os.sched_getaffinity(0))
        self.choice: str | None = None

    def start(self) -> None:
        """Do nothing: Ray starts once it is worth it."""

    def open(self, job: Job) -> None:
        """Make the worker of this process; of a job with a time limit, start the actors.

        Raises:
            OdtSimError: See `SerialBackend.open` and `RayBackend.open`.
        """
        self._job, self._progress, self._paces = job, Progress(job.rounds), Paces()
        self._there: Backend | None = None
        self._starting: Future[Backend] | None = None
        self._on_actors, self._settled = False, self._cores == 1
        self._period: _Period | None = None
        self._next_look, self._saved, self._warm, self._evaluates = 0.0, 0.0, False, False
        self.choice = "this process" if self._cores > 1 else "this process: one core"
        if job.fleet.timeout is None:
            self._here.open(job)
            return
        self._there = self._ray()
        self._there.open(job)
        self._on_actors = self._settled = True
        self.choice = "ray: fleet.timeout needs workers that can be ended"

    def train(self, tasks: Sequence[Task], messages: Messages) -> Iterator[Trained]:
        """Train blocks where that is faster."""
        if not self._settled:
            self._compare(tasks)
        return self._run("train", tasks, messages)

    def evaluate(self, tasks: Sequence[Task], messages: Messages) -> Iterator[list[Row]]:
        """Evaluate blocks where training is faster."""
        self._evaluates = True
        return self._run("evaluate", tasks, messages)

    def close(self) -> None:
        """Drop the worker of this process, and leave the actors to later jobs."""
        global _start_seconds
        if self._starting:
            self._starting.exception()  # Ray must not start while the process ends
        if self._there:
            self._there.close()
            _start_seconds = 0.0
        else:
            _start_seconds -= max(0.0, self._saved)
        self._here.close()

    def _run(self, method: Method, tasks: Sequence[Task], messages: Messages) -> Iterator[Any]:
        if self._on_actors:
            return self._call(self._there, method, tasks, messages)
        if self._settled:
            return self._call(self._here, method, tasks, messages)
        return self._until_moved(method, tasks, messages)

    def _call(
        self, backend: Backend | None, method: Method, tasks: Sequence[Task], messages: Messages
    ) -> Iterator[Any]:
        assert backend is not None
        return iter(getattr(backend, method)(tasks, messages))

    def _until_moved(self, method: Method, tasks: Sequence[Task], messages: Messages) -> Iterator[Any]:
        """Do blocks in this process, and those that are left on actors once there are any."""
        results = self._call(self._here, method, tasks, messages)
        for number, task in enumerate(tasks):
            if self._moves(tasks, number):
                self._period = None  # a round on both is no measurement
                yield from self._call(self._there, method, tasks[number:], messages)
                return
            yield next(results)
            if not self._warm:
                self._warm = True
                self._progress.begin(perf_counter(), self._job.cost(task))
        self._progress.cost += self._cost(tasks)
        if method == "train" and tasks:
            self._progress.end(tasks[0].round if tasks[0].saves is None else tasks[0].saves)

    def _moves(self, tasks: Sequence[Task], number: int) -> bool:
        """Return whether the blocks from a number on are for actors; start Ray and open it when it is time to."""
        if self._on_actors or self._settled:
            return self._on_actors
        if self._starting:
            return self._starting.done() and self._open(self._starting)
        now = perf_counter()
        if now >= self._next_look:
            self._next_look = now + LOOKS_AFTER
            if self._worth_starting(tasks, number, now):
                self._starting = in_daemon_thread(self._ray)
        return False

    def _worth_starting(self, tasks: Sequence[Task], number: int, now: float) -> bool:
        """Return whether actors would save more of the work that is left than their start takes."""
        costs, progress = [self._job.cost(task) for task in tasks], self._progress
        whole, done = sum(costs), sum(costs[:number])
        self._paces.rate = progress.rate(now, done)
        seconds = self._paces.rate * whole
        share = saved(seconds, costs, self._cores) / whole
        if seconds and tasks[0].kind == "train":
            expected = seconds - share * whole
            self.choice = f"this process: {seconds:.3g} s a round, {expected:.3g} s expected in ray"
        self._saved = share * progress.cost
        return share > 0 and share * progress.left(done, whole, tasks[0].kind) > _start_seconds

    def _cost(self, tasks: Sequence[Task]) -> float:
        """Return the cost of tasks together."""
        devices = tuple(device for task in tasks for device in task.devices)
        return self._job.cost(replace(tasks[0], devices=devices)) if tasks else 0.0

    def _ray(self) -> Backend:
        from odt_sim.simulation.ray import RayBackend  # here, so that a run without it does not import Ray

        backend = RayBackend(**self._settings)
        backend.start()
        return backend

    def _open(self, starting: Future[Backend]) -> bool:
        """Bring the job to the actors; whatever prevents it, the run goes on in this process."""
        try:
            there = starting.result()
            there.open(self._job)
        except Exception as error:  # Ray raises errors of many types
            self._settled = True
            self.choice = f"this process: Ray does not start ({' '.join(str(error).split())})"
            return False
        self._there, self._on_actors, self.choice = there, True, "ray"
        return True

    def _compare(self, tasks: Sequence[Task]) -> None:
        """Record the round before this one, and keep the faster backend once both are measured."""
        now, before, first = perf_counter(), self._period, self._progress.trained == 1 and not self._on_actors
        self._period, self._evaluates = _Period(now, self._cost(tasks), self._on_actors, self._evaluates), False
        if before and before.on_actors == self._on_actors and not first:  # the first round builds interpreters
            self._paces.add(now - before.since, before.cost, actors=before.on_actors, evaluates=before.evaluates)
        if compared := self._paces.compared():
            here, there = compared
            self._settled, self._on_actors = True, there < here
            if self._on_actors:
                self._here.close()
            chosen, other = ("ray", "this process") if self._on_actors else ("this process", "ray")
            self.choice = f"{chosen}: {min(compared):.3g} s a round, {max(compared):.3g} s in {other}"
