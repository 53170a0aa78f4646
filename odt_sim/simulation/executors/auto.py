"""The backend that runs devices in this process and its forks, or only in this process if that is faster."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Literal

from odt_sim._support.system import cores
from odt_sim.device.engines import RuntimeChoice, RuntimeName
from odt_sim.errors import SimulationError
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.executors.processes import CAN_FORK, ProcessesBackend
from odt_sim.simulation.run.messages import Assignment

LONG = 0.02
"""The seconds of a round from which messages between processes, about half a millisecond, do not matter."""

COMPARED = 16
"""The number of rounds in each place whose medians are compared."""


def backend(
    address: str = "local",
    actors: int | None = None,
    devices_per_actor: Literal[1, "auto"] = "auto",
    num_cpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    runtime: RuntimeName = "litert",
    runtime_python: str | None = None,
) -> Executor:
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
    from odt_sim.simulation.executors.ray import RayBackend

    return RayBackend(address, actors, devices_per_actor, num_cpus, resources, runtime_env, runtime, runtime_python)


class AutoBackend(Executor):
    """A backend with a process for each core, unless short rounds are faster in this process alone.

    The first rounds run in all processes. If the median of the first `COMPARED` rounds is short, the next ones run in this
    process alone, and the faster place is kept. Results do not depend on where a block runs, so the choice affects only
    the time. A job whose devices have a time limit runs on Ray: only Ray replaces workers that are ended in native code.

    Attributes:
        choice: Where the last job ran and the seconds that decided it; None before a job was opened.
    """

    def __init__(self, runtime: RuntimeName = "litert", runtime_python: str | None = None) -> None:
        """Check the settings, which `backend` documents; start nothing.

        Raises:
            ConfigurationError: A setting is out of range.
        """
        self.runtime = RuntimeChoice(runtime, runtime_python)
        self._processes = ProcessesBackend(None, runtime, runtime_python)
        self._place: Executor = self._processes
        # The seconds of rounds in all processes and in this one; None once the place is chosen.
        self._measured: tuple[list[float], list[float]] | None = None

    def open(self, job: Job) -> None:
        """Make the workers.

        Raises:
            OdtSimError: See `SerialBackend.open` and `RayBackend.open`.
        """
        alone, self._measured = self._processes.alone, None
        if job.fleet.timeout is not None:
            from odt_sim.simulation.executors.ray import RayBackend  # here: without a time limit, Ray is not imported

            self._place = RayBackend(runtime=self.runtime.name, runtime_python=self.runtime.python)
            self.choice = "ray: fleet.timeout needs workers that can be killed"
            self._place.open(job)
        elif self._processes.processes == 1:
            reason = "one core" if CAN_FORK or cores() == 1 else "backend=ray uses all cores"
            self._place, self.choice = alone, f"this process: {reason}"
            alone.open(job)
        else:
            self._place, self.choice, self._measured = self._processes, "processes", ([], [])
            try:
                self._processes.open(job)
            except SimulationError as error:
                self._place, self.choice, self._measured = alone, f"this process: {error}", None
                alone.open(job)

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run blocks in the place where training is faster; see `Executor`."""
        started = perf_counter()
        self._place.run(assignment, take)
        if self._measured is not None and assignment.trains:
            self._measured[self._place is not self._processes].append(perf_counter() - started)
            self._decide(*self._measured)

    def close(self) -> None:
        """End the processes, and keep Ray's actors for later jobs."""
        self._processes.close()
        self._place.close()

    def _decide(self, in_processes: Sequence[float], in_this: Sequence[float]) -> None:
        """Choose the place of the next rounds.

        Args:
            in_processes: The seconds of the rounds that ran in all processes; the first one builds interpreters.
            in_this: The seconds of those that ran in this process alone.
        """
        processes, alone = in_processes[1:], in_this[1:]
        if not processes or (len(processes) < COMPARED and sum(processes) < COMPARED * LONG):
            return
        shared = median(processes)
        if shared >= LONG:
            self.choice, self._measured = f"processes: {shared:.3g} s a round", None
        elif len(alone) < COMPARED:
            self._place = self._processes.alone
        elif shared <= (single := median(alone)):
            self._place, self._measured = self._processes, None
            self.choice = f"processes: {shared:.3g} s a round, {single:.3g} s in this process alone"
        else:
            self.choice = (
                f"this process: {single:.3g} s a round, {shared:.3g} s in {self._processes.processes} processes"
            )
            self._measured = None
            self._processes.end_helpers()
