"""The actor calls of a round's tasks."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from odt_sim.simulation.executors.job import Job, Trained
from odt_sim.simulation.executors.ray.actors import TRIES, Actors, Call
from odt_sim.simulation.executors.ray.call_errors import LOST, is_own_death, result
from odt_sim.simulation.executors.shares import in_shares
from odt_sim.simulation.run.evaluation import unmeasured
from odt_sim.simulation.run.messages import Assignment
from odt_sim.simulation.run.sums import joined


class SharedActors:
    """The schedule of actors that take any task: an idle actor takes the next share."""

    def __init__(self, costs: Sequence[float], devices: Sequence[int], actors: int, most_devices: int) -> None:
        """Divide all tasks into shares.

        Args:
            costs: The cost of each task, in any unit.
            devices: The number of devices of each task.
            actors: The number of actors.
            most_devices: The maximum number of devices in a call with several tasks.
        """
        self._waiting = deque(in_shares(costs, devices, actors, most_devices))
        self._idle = [True] * actors

    def take(self, ready: Sequence[bool]) -> tuple[list[int], int] | None:
        """Return the tasks of the next call and its actor; None if there is no call to make now.

        Args:
            ready: Whether each actor accepts calls; actors that were added after the division get none.
        """
        pairs = zip(ready, self._idle, strict=False)
        slot = next((slot for slot, (accepts, idle) in enumerate(pairs) if accepts and idle), None)
        if slot is None or not self._waiting:
            return None
        self._idle[slot] = False
        return self._waiting.popleft(), slot

    def back(self, tasks: Sequence[int], slot: int, *, done: bool) -> None:
        """Record the end of a call; if it was lost, its tasks are handed out next."""
        self._idle[slot] = True
        if not done:
            self._waiting.appendleft(list(tasks))

    def cut(self, pieces: Sequence[int], slot: int) -> None:
        """Record the loss of a call, whose devices are handed out next as tasks of their own."""
        self._idle[slot] = True
        self._waiting.extendleft([piece] for piece in reversed(pieces))


class OwnActors:
    """The schedule of dedicated actors, of which a limited number run at once."""

    def __init__(self, actors: Sequence[int], most_running: int) -> None:
        """Set the actor of each task, and the maximum number of calls in flight."""
        self._actors, self._left = actors, most_running
        self._waiting = deque(range(len(actors)))

    def take(self, ready: Sequence[bool]) -> tuple[list[int], int] | None:
        """Return the next task and its actor; None if there is no call to make now."""
        task = next((task for task in self._waiting if ready[self._actors[task]]), None) if self._left else None
        if task is None:
            return None
        self._left -= 1
        self._waiting.remove(task)
        return [task], self._actors[task]

    def back(self, tasks: Sequence[int], slot: int, *, done: bool) -> None:
        """Record the end of a call; if it was lost, its task is handed out next."""
        self._left += 1
        if not done:
            self._waiting.extendleft(tasks)


class Calls:
    """Tasks in flight: the first calls are made immediately, the others while results are read.

    If an actor dies during a call with several devices, the call is repeated as one call per device. A device whose
    actor dies repeatedly is excluded. Calls that are lost with a node are repeated without limit.
    """

    def __init__(
        self,
        assignment: Assignment,
        schedule: SharedActors | OwnActors,
        broadcast: Any,
        actors: Actors,
        job: Job,
    ) -> None:
        """Make the first calls.

        Args:
            assignment: The tasks, and what their devices receive.
            schedule: The tasks of each actor.
            broadcast: The server's broadcast, or its reference.
            actors: The actors.
            job: The run's job.
        """
        self._tasks, self._schedule = list(assignment.tasks), schedule
        self._messages, self._broadcast, self._actors, self._job = assignment.messages, broadcast, actors, job
        self._pieces: dict[int, list[int]] = {}  # the tasks of single devices, by the task that was cut into them
        self._running: dict[Any, Call] = {}
        self._done: dict[int, Any] = {}
        self._deaths = Counter[int]()
        self._hand_out()

    def result(self, task: int) -> Any:
        """Wait for a task's result, and return it, once.

        Raises:
            OdtSimError: A task failed.
        """
        while task not in self._done and task not in self._pieces:
            self._end_one()
            self._hand_out()
        if task in self._done:
            return self._done.pop(task)
        return joined(self._tasks[task], [self.result(piece) for piece in self._pieces.pop(task)])

    def _hand_out(self) -> None:
        while taken := self._schedule.take([actor is not None for actor in self._actors.slots]):
            numbers, slot = taken
            work = [self._messages.addressed(self._tasks[number]) for number in numbers], self._broadcast
            call = self._actors.call(slot, work, numbers)
            self._running[call.reference] = call

    def _end_one(self) -> None:
        """Wait until a call has ended, or an actor has started."""
        if not self._running:
            self._hand_out()  # an actor may have started while other calls waited
        reference = self._actors.wait(self._running)
        if reference is None:
            return
        call = self._running.pop(reference)
        try:
            self._done.update(zip(call.tasks, result(reference), strict=True))
        except LOST as error:
            self._actors.replace(call, died=is_own_death(error, call.node))
            tasks = [self._tasks[number] for number in call.tasks]
            if not call.deadly:
                self._schedule.back(call.tasks, call.slot, done=False)
            elif isinstance(self._schedule, SharedActors) and sum(len(task.devices) for task in tasks) > 1:
                self._cut(call, self._schedule)
            else:
                self._count(call)
        else:
            self._actors.done(call)
            self._schedule.back(call.tasks, call.slot, done=True)

    def _cut(self, call: Call, schedule: SharedActors) -> None:
        first = len(self._tasks)
        for number in call.tasks:
            parts = self._tasks[number].each()
            self._pieces[number] = [len(self._tasks) + i for i in range(len(parts))]
            self._tasks += parts
        schedule.cut(range(first, len(self._tasks)), call.slot)

    def _count(self, call: Call) -> None:
        """Repeat the task of one device, or exclude the device after several deaths."""
        [number] = call.tasks
        self._deaths[number] += 1
        last = self._deaths[number] == TRIES
        if last:
            [device] = self._tasks[number].devices
            hung = "" if self._job.fleet.timeout is None else " or hung"
            reason = f"worker died{hung} {TRIES} times"
            training = self._tasks[number].kind == "train"
            excluded = Trained(excluded={device: reason}) if training else [unmeasured(self._job.data, device, reason)]
            self._done[number] = excluded
        self._schedule.back(call.tasks, call.slot, done=last)
