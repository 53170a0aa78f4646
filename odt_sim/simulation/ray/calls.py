"""Calls of actors that do a round's tasks."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from odt_sim.simulation.evaluation import unmeasured
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.ray.actors import TRIES, Actors, Call
from odt_sim.simulation.ray.call_errors import LOST, is_workers, result
from odt_sim.simulation.ray.schedule import OwnActors, Schedule
from odt_sim.simulation.sums import join
from odt_sim.simulation.time_limit import GRACE

Method = Literal["train", "evaluate"]

SLACK = 60  # seconds of a call for what is not its devices' own work: their states, a new round's broadcast

JOINED: Mapping[Method, Callable[[list[Any]], Any]] = {
    "train": join,
    "evaluate": lambda parts: [row for rows in parts for row in rows],
}
"""What a block's result is, of those of its devices."""


class Calls:
    """Tasks on their way; the first are with the actors at once, the others follow while the results are taken.

    Where an actor dies at several devices, each of them is done in a call of its own: one at which actors die again and again
    is left out, and no other. What is lost with a node, or out of reach, is done again, however often.
    """

    def __init__(
        self,
        method: Method,
        tasks: Sequence[Task],
        schedule: Schedule | OwnActors,
        broadcast: Any,
        actors: Actors,
        job: Job,
    ) -> None:
        """Hands out the first calls.

        Args:
            method: What is done with the tasks.
            tasks: The tasks.
            schedule: Says who does which of them.
            broadcast: The reference of the server's broadcast.
            actors: The actors.
            job: What they work at.
        """
        self._method, self._tasks, self._schedule = method, list(tasks), schedule
        self._broadcast, self._actors, self._job = broadcast, actors, job
        self._wanted = len(tasks)
        self._pieces: dict[int, list[int]] = {}  # of a task that was cut: the tasks of its devices
        self._running: dict[Any, Call] = {}
        self._done: dict[int, Any] = {}
        self._deaths = Counter[int]()
        self._hand_out()

    def __iter__(self) -> Iterator[Any]:
        """Yields the tasks' results in their order, whatever the order in which actors finish or die.

        Raises:
            OdtSimError: A task failed.
        """
        for task in range(self._wanted):
            yield self._result(task)

    def _result(self, task: int) -> Any:
        while task not in self._done and task not in self._pieces:
            self._take_one()
            self._hand_out()
        if task in self._done:
            return self._done.pop(task)
        return JOINED[self._method]([self._result(piece) for piece in self._pieces.pop(task)])

    def _hand_out(self) -> None:
        while taken := self._schedule.take([actor is not None for actor in self._actors.slots]):
            numbers, slot = taken
            tasks = [self._tasks[number] for number in numbers]
            call = self._actors.call(slot, (self._method, tasks, self._broadcast), numbers, self._seconds(tasks))
            self._running[call.reference] = call

    def _seconds(self, tasks: Sequence[Task]) -> float:
        """Returns how long an actor that watches its devices' time takes at most; it may be stopped, or swapped out."""
        limit = self._job.fleet.timeout
        return math.inf if limit is None else SLACK + (limit + GRACE) * sum(len(task.devices) for task in tasks)

    def _take_one(self) -> None:
        """Waits until a call has ended, or an actor has started, which then takes calls."""
        if not self._running:
            self._hand_out()  # where an actor has started while others waited for theirs
        reference = self._actors.wait(self._running)
        if reference is None:
            return
        call = self._running.pop(reference)
        try:
            self._done.update(zip(call.tasks, result(reference), strict=True))
        except LOST as error:
            self._actors.replace(call, died=is_workers(error))
            self._again(call)
        else:
            self._actors.taken(call)
            self._schedule.back(call.tasks, call.slot, done=True)

    def _again(self, call: Call) -> None:
        """Has the tasks of a call done again that was lost with its actor, or gives them up."""
        tasks = [self._tasks[number] for number in call.tasks]
        if not call.deadly:
            self._schedule.back(call.tasks, call.slot, done=False)
        elif isinstance(self._schedule, Schedule) and sum(len(task.devices) for task in tasks) > 1:
            self._cut(call, self._schedule)
        else:
            self._count(call)

    def _cut(self, call: Call, schedule: Schedule) -> None:
        each = {number: self._tasks[number].each() for number in call.tasks}
        pieces = iter(schedule.cut(call.slot, [self._job.cost(piece) for parts in each.values() for piece in parts]))
        for number, parts in each.items():
            self._tasks += parts
            self._pieces[number] = [next(pieces) for _ in parts]

    def _count(self, call: Call) -> None:
        [number] = call.tasks
        self._deaths[number] += 1
        dead = self._deaths[number] == TRIES
        if dead:
            self._done[number] = self._given_up(self._tasks[number])
        self._schedule.back(call.tasks, call.slot, done=dead)

    def _given_up(self, task: Task) -> Any:
        """Returns the result of a device that actors died at again and again."""
        [device] = task.devices
        hung = "" if self._job.fleet.timeout is None else " or hung"
        reason = f"worker died{hung} {TRIES} times"
        if self._method == "train":
            return Trained(excluded={device: reason})
        return [unmeasured(self._job.data, device, reason)]
