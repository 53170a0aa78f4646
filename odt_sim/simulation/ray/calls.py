"""Calls of actors that do a round's tasks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from odt_sim.errors import SimulationError
from odt_sim.simulation.block import Task
from odt_sim.simulation.ray.actors import TRIES, Actors
from odt_sim.simulation.ray.result import LOST, one_line, result
from odt_sim.simulation.ray.schedule import OwnActors, Schedule

Method = Literal["train", "evaluate"]


class Calls:
    """Tasks on their way; the first are with the actors at once, the others follow while the results are taken."""

    def __init__(
        self,
        method: Method,
        tasks: Sequence[Task],
        schedule: Schedule | OwnActors,
        broadcast: Any,
        actors: Actors,
    ) -> None:
        """Hands out the first calls.

        Args:
            method: What is done with the tasks.
            tasks: The tasks.
            schedule: Says who does which of them.
            broadcast: The reference of the server's broadcast.
            actors: The actors.
        """
        self._method, self._tasks, self._schedule = method, tasks, schedule
        self._broadcast, self._actors = broadcast, actors
        self._running: dict[Any, tuple[list[int], int, Any]] = {}
        self._done: dict[int, Any] = {}
        self._tries = Counter[int]()
        self._hand_out()

    def __iter__(self) -> Iterator[Any]:
        """Yields the tasks' results in their order, whatever the order in which actors finish or die.

        Raises:
            OdtSimError: A task failed, or its actors died again and again.
        """
        for task in range(len(self._tasks)):
            while task not in self._done:
                self._take_one()
                self._hand_out()
            yield self._done.pop(task)

    def _hand_out(self) -> None:
        while taken := self._schedule.take([actor is not None for actor in self._actors.slots]):
            numbers, slot = taken
            actor, tasks = self._actors.slots[slot], [self._tasks[number] for number in numbers]
            self._running[actor.work.remote((self._method, tasks, self._broadcast))] = numbers, slot, actor

    def _take_one(self) -> None:
        """Waits until a call has ended, or an actor has started, which then takes calls."""
        if not self._running:
            self._hand_out()  # where an actor has started while others waited for theirs
        reference = self._actors.wait(self._running)
        if reference is None:
            return
        numbers, slot, actor = self._running[reference]
        try:
            self._done.update(zip(numbers, result(reference), strict=True))
            self._schedule.back(numbers, slot, done=True)
        except LOST as error:
            if self._actors.replace(slot, actor):  # no matter which of its calls tells first that it is dead
                self._suspect(next(first for first, _, its in self._running.values() if its is actor), error)
            self._schedule.back(numbers, slot, done=False)
        del self._running[reference]

    def _suspect(self, numbers: Sequence[int], error: Exception) -> None:
        """Counts a death against the call that the actor was at."""
        self._tries.update(numbers)
        if max(self._tries[number] for number in numbers) == TRIES:
            raise self._gave_up(numbers, error) from error

    def _gave_up(self, numbers: Sequence[int], error: Exception) -> SimulationError:
        tasks = [self._tasks[number] for number in numbers]
        first, last = tasks[0].devices[0], tasks[-1].devices[-1]
        devices = f"device {first}" if first == last else f"devices {first}..{last}"
        return SimulationError(
            f"backend ray: workers died {TRIES} times on {devices} in round {tasks[0].round} ({one_line(error)}); "
            "check memory, or run it with backend=serial"
        )
