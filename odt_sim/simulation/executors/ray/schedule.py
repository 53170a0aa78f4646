"""The next call of each actor, without Ray."""

from collections import deque
from collections.abc import Sequence

from odt_sim.simulation.executors.shares import in_shares


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
