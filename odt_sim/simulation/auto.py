"""The backend that tries threads of this process, one thread and Ray actors, and stays where rounds are fastest."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from time import perf_counter, process_time
from typing import Any, Literal

from odt_sim.daemon_threads import in_daemon_thread
from odt_sim.device.engines import RuntimeChoice, RuntimeName
from odt_sim.errors import SimulationError
from odt_sim.memory import hand_back
from odt_sim.simulation.backend import Backend
from odt_sim.simulation.evaluation import Row
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.messages import Messages
from odt_sim.simulation.pace import Paces, Place, on_actors
from odt_sim.simulation.serial import SerialBackend
from odt_sim.simulation.threads import ThreadsBackend, cores

STARTING = 5.0  # seconds that Ray and its actors need, in which rounds are slower, on two cores
WORTH = 0.8  # Ray starts only if its rounds are expected to take less than this part of what they take here
BUSY = 1.5  # cores in use with which threads are surely faster than one
SURELY = 0.9  # threads are chosen only if their rounds take less than this part of those in one thread
AGAIN = 4.0  # times the measured seconds so far, after which threads are compared with one thread again

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


class AutoBackend:
    """Threads of this process first, then one thread unless threads keep the cores busy, then Ray if that is worth it.

    A run moves between rounds. From time to time, ever more rarely, it compares threads with one thread again: first rounds
    may differ from later ones, as a frozen body computes features once. Results do not depend on where a block runs, so that
    the choice changes nothing but time. A job whose devices have a time limit runs on actors from the start: only they can
    be ended in native code.

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
        self.runtime = RuntimeChoice(runtime, runtime_python)
        self.choice: str | None = None

    def start(self) -> None:
        """Do nothing: Ray starts once it is worth it."""

    def open(self, job: Job) -> None:
        """Make the workers of this process; of a job with a time limit, start the actors.

        Raises:
            OdtSimError: See `SerialBackend.open` and `RayBackend.open`.
        """
        self._job, self._paces, self._cores = job, Paces(), cores()
        self._opened: dict[Place, Backend] = {}
        self._starting: Future[Backend] | None = None
        self._saving, self._round, self._rounds, self._again = 0.0, 0, 0, 0.0
        if job.fleet.timeout is not None:
            self._enter("ray", self._ray())
            self._settle("ray: fleet.timeout needs workers that can be ended")
            return
        self._serial = SerialBackend(**self._settings)
        self._enter("this process", self._serial)
        if self._cores == 1:
            self._settle("this process: one core")
            return
        self.choice = "threads"
        self._try_threads()

    def train(self, tasks: Sequence[Task], messages: Messages) -> Iterator[Trained]:
        """Train blocks where that is faster."""
        costs = self._job.costs(tasks)
        if tasks:
            self._round, self._rounds = tasks[0].saves or tasks[0].round, self._rounds + 1
        self._paces.end(perf_counter(), process_time())
        self._decide(costs)
        self._paces.begin(self._place, perf_counter(), process_time(), sum(costs))
        return self._opened[self._place].train(tasks, messages)

    def evaluate(self, tasks: Sequence[Task], messages: Messages) -> Iterator[list[Row]]:
        """Evaluate blocks where training is faster."""
        self._paces.evaluates()
        return self._opened[self._place].evaluate(tasks, messages)

    def close(self) -> None:
        """Drop the workers of this process, and leave the actors to later jobs."""
        global _start_seconds
        if self._starting:
            self._starting.exception()  # Ray must not start while the process ends
        _start_seconds = 0.0 if "ray" in self._opened else _start_seconds - max(0.0, self._saving) * self._rounds
        for backend in self._opened.values():
            backend.close()
        self._opened = {}

    def _enter(self, place: Place, backend: Backend) -> None:
        """Bring the job to a place, which runs the next rounds."""
        backend.open(self._job)
        self._opened[place], self._place = backend, place

    def _try_threads(self) -> None:
        """Run the next rounds in threads; in one thread to the end if they cannot copy the strategy."""
        threads = ThreadsBackend(**self._settings)
        threads.embeddings = self._serial.embeddings
        try:
            self._enter("threads", threads)
        except SimulationError as error:  # Ray cannot copy the strategy either
            self._settle(f"this process: {error}")
        else:
            self._decide = self._after_threads

    def _settle(self, choice: str) -> None:
        """Stay in the current place."""
        self._decide, self.choice = lambda costs: None, choice

    # --- what is decided before a round, one after the other --------------------------------------------------------------

    def _after_threads(self, costs: Sequence[float]) -> None:
        if not self._paces.known("threads"):
            return
        if (busy := self._paces.busy("threads")) >= BUSY:
            self._stay_here(f"threads: {self._paces.seconds('threads'):.3g} s a round, {busy:.2g} cores in use")
        else:
            self._place, self._decide = "this process", self._after_one_thread

    def _after_one_thread(self, costs: Sequence[float]) -> None:
        if choice := self._faster("this process", "threads", margin=SURELY):
            self._stay_here(choice)

    def _stay_here(self, choice: str) -> None:
        self._decide, self.choice, self._here = self._before_ray, choice, self._place
        self._again = AGAIN * self._paces.total
        if self._here == "this process":
            self._opened.pop("threads").close()  # frees its interpreters, as many as cores
            hand_back()

    def _before_ray(self, costs: Sequence[float]) -> None:
        """Start Ray if that is worth it, and go there once it has started; compare threads again when it is time to."""
        if self._starting:
            if self._starting.done():
                self._move_to_ray(self._starting)
            return
        if self._paces.total >= self._again:
            self._paces.forget()
            if self._place == "threads":
                self._decide = self._after_threads
            else:
                self._try_threads()
            return
        here, paces = self._paces.seconds(self._place), self._paces
        one: Place = "this process"
        work = paces.seconds(one) if paces.known(one) else here * paces.busy("threads")
        there = on_actors(work, costs, self._cores)
        self._saving = here - there if there < WORTH * here else 0.0
        if self._saving * (self._job.rounds - self._round + 1) > _start_seconds:
            self._starting = in_daemon_thread(self._ray)

    def _move_to_ray(self, starting: Future[Backend]) -> None:
        """Bring the job to the actors; whatever prevents it, the run goes on in this process."""
        try:
            self._enter("ray", starting.result())
        except Exception as error:  # Ray raises errors of many types
            self._settle(f"{self._place}: Ray does not start ({' '.join(str(error).split())})")
            return
        self._decide, self.choice = self._after_ray, "ray"

    def _after_ray(self, costs: Sequence[float]) -> None:
        if choice := self._faster("ray", self._here):
            self._settle(choice)

    def _faster(self, one: Place, other: Place, margin: float = 1.0) -> str | None:
        """Go to the faster of two places and return the choice; None until both are measured.

        Args:
            one: A place.
            other: Another, which takes less than `margin` of the seconds of the first if it is chosen.
            margin: See `other`.
        """
        if (compared := self._paces.compared(one, other)) is None:
            return None
        self._place, slower = (other, one) if compared[1] < margin * compared[0] else (one, other)
        chosen, left = reversed(compared) if self._place == other else compared
        return f"{self._place}: {chosen:.3g} s a round, {left:.3g} s in {slower}"

    def _ray(self) -> Backend:
        from odt_sim.simulation.ray import RayBackend  # here, so that a run without it does not import Ray

        backend = RayBackend(**self._settings)
        backend.start()
        return backend
