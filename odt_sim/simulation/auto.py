"""The backend that runs devices in this process and its forks, or only in this process if that is faster."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal

from odt_sim._support.system import cores
from odt_sim.device.engines import RuntimeChoice, RuntimeName
from odt_sim.errors import SimulationError
from odt_sim.simulation.backend import Backend
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.messages import Messages
from odt_sim.simulation.pace import Paces, Place
from odt_sim.simulation.processes import ProcessesBackend
from odt_sim.simulation.processes.backend import CAN_FORK

LONG = 0.02  # seconds of a round above which messages between processes, about 1 ms, do not matter
SURELY = 0.95  # forks are kept only if a round takes less than this fraction of its time without forks
AGAIN = 4.0  # rounds are measured again after this multiple of the seconds measured so far
WORTH_RAY = 60.0  # seconds of rounds on one core of macOS after which Ray is recommended; it takes seconds to start


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
    """Return the automatic backend, or the Ray backend if a setting of Ray's cluster or actors is given.

    Args:
        address: The Ray cluster to join: `auto` or `host:port`. Any value other than `local` runs the devices on Ray.
        actors: The number of Ray actors. A number runs the devices on Ray.
        devices_per_actor: 1 runs the devices on Ray, with an actor for each device; `auto` does not decide for Ray.
        num_cpus: The CPUs that each Ray actor reserves. A number runs the devices on Ray.
        resources: Custom resources of the Ray cluster that each actor reserves, by name. A mapping runs the devices on Ray.
        runtime_env: Ray's runtime environment for all processes of the job. A mapping runs the devices on Ray.
        runtime: The runtime of the model's file: `litert`, LiteRT's interpreter; `compiled`, LiteRT's compiled model;
            `flex`, TensorFlow's interpreter with Flex ops, in an extra process for each process that runs devices.
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


class AutoBackend:
    """A backend with a process for each core, unless short rounds are faster in this process alone.

    It gives up further processes only if rounds there are slower both before and after those in this process alone: the
    speed of a shared machine changes within a second. It repeats the comparison at growing intervals: first rounds may
    differ from later ones, because a frozen body computes its features once. Results do not depend on where a block
    runs, so the choice affects only the time. A job whose devices have a time limit runs on Ray: only Ray replaces
    workers that are ended in native code.

    Attributes:
        choice: Where the last job ran and the seconds that decided it; None before a job was opened.
    """

    _place: Place
    _backend: Backend
    _decide: Callable[[], None]  # called before the next round
    _again: float  # the measured seconds after which rounds are measured again

    def __init__(self, runtime: RuntimeName = "litert", runtime_python: str | None = None) -> None:
        """Check the settings, which `backend` documents; start nothing.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        self._settings: dict[str, Any] = {"runtime": runtime, "runtime_python": runtime_python}
        self.runtime = RuntimeChoice(runtime, runtime_python)
        self.choice: str | None = None

    def start(self) -> None:
        """Do nothing: Ray starts only for a job that needs it."""

    def open(self, job: Job) -> None:
        """Make the workers.

        Raises:
            OdtSimError: See `SerialBackend.open` and `RayBackend.open`.
        """
        self._job, self._paces, self._processes = job, Paces(), ProcessesBackend(**self._settings)
        self._enter("processes", self._processes)
        if job.fleet.timeout is not None:
            from odt_sim.simulation.ray import RayBackend  # here: without a time limit, Ray is not imported

            self._settle("ray", RayBackend(**self._settings), "ray: fleet.timeout needs workers that can be killed")
            self._backend.open(job)
            return
        self._processes.alone.open(job)
        if self._processes.processes == 1:
            reason = "one core" if CAN_FORK else "backend=ray uses all cores"
            self._settle("this process", self._processes.alone, f"this process: {reason}")
            if not CAN_FORK and cores() > 1:
                self._decide = self._recommend_ray
        else:
            self.choice = "processes"
            self._try_processes()

    def train(self, tasks: Sequence[Task], messages: Messages) -> Iterator[Trained]:
        """Train blocks in the place that is faster."""
        self._paces.end(perf_counter())
        self._decide()
        self._paces.begin(self._place, perf_counter(), sum(self._job.costs(tasks)))
        return self._backend.train(tasks, messages)

    def evaluate(self, tasks: Sequence[Task], messages: Messages) -> Iterator[list[Row]]:
        """Evaluate blocks in the place where training is faster."""
        self._paces.evaluates()
        return self._backend.evaluate(tasks, messages)

    def drop(self) -> None:
        """Drop the blocks in flight; see `Backend`."""
        if self._place == "processes":
            self._processes.drop()

    def close(self) -> None:
        """End the processes, and keep Ray's actors for later jobs."""
        self._processes.close()
        if self._place == "ray":
            self._backend.close()

    def _enter(self, place: Place, backend: Backend) -> None:
        """Run the next rounds in a place."""
        self._place, self._backend = place, backend

    def _settle(self, place: Place, backend: Backend, choice: str) -> None:
        """Stay in a place until the end of the job."""
        self._enter(place, backend)
        self._decide, self.choice = lambda: None, choice

    # --- the decisions before a round, in their order --------------------------------------------------------------

    def _try_processes(self) -> None:
        """Run the next rounds in all processes; stay in this one until the end if no other can be started."""
        try:
            self._processes.start_helpers(self._job)
        except SimulationError as error:
            self._settle("this process", self._processes.alone, f"this process: {error}")
        else:
            self._enter("processes", self._processes)
            self._decide = self._after_processes

    def _recommend_ray(self) -> None:
        """Warn once that the run takes long on one core."""
        if self._paces.total >= WORTH_RAY:
            self._decide = lambda: None
            warnings.warn(
                f"backend auto: uses 1 of {cores()} cores on macOS; interrupt the run and resume it with backend=ray, which "
                "uses all cores, with the same results",
                stacklevel=2,
            )

    def _after_processes(self) -> None:
        if not self._paces.known("processes"):
            return
        if (seconds := self._paces.seconds("processes")) >= LONG:
            self._stay(f"processes: {seconds:.3g} s a round")
        else:
            self._enter("this process", self._processes.alone)
            self._decide = self._after_this_process

    def _after_this_process(self) -> None:
        if (compared := self._paces.compared("processes", "this process")) is None:
            return
        self._enter("processes", self._processes)
        if not self._keeps_processes(*compared):
            self._paces.forget("processes")
            self._decide = self._after_processes_again

    def _after_processes_again(self) -> None:
        if (compared := self._paces.compared("processes", "this process")) is None or self._keeps_processes(*compared):
            return
        self._enter("this process", self._processes.alone)
        processes, alone = (f"{seconds:.3g} s" for seconds in compared)
        self._stay(f"this process: {alone} a round, {processes} in {self._processes.processes} processes")
        self._decide = self._end_processes  # a round later: helpers may still evaluate

    def _end_processes(self) -> None:
        self._processes.end_helpers()
        self._decide = self._compare_again

    def _keeps_processes(self, processes: float, alone: float) -> bool:
        """Stay in all processes if rounds, given their seconds, are surely faster there; return whether they are."""
        faster = processes < SURELY * alone
        if faster:
            self._stay(f"processes: {processes:.3g} s a round, {alone:.3g} s in this process alone")
        return faster

    def _stay(self, choice: str) -> None:
        """Stay in the current place for a while."""
        self.choice, self._again = choice, AGAIN * self._paces.total
        self._decide = self._compare_again

    def _compare_again(self) -> None:
        if self._paces.total >= self._again:
            self._paces.forget("processes", "this process")
            if self._place == "processes":
                self._decide = self._after_processes
            else:
                self._try_processes()
