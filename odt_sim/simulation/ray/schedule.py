"""The assignment of tasks to actors, without clocks and without Ray."""

from collections import deque
from collections.abc import Sequence

AHEAD = 2
"""Calls in flight per actor, so that actors never wait for the coordinator."""


def assign(costs: Sequence[float], actors: int) -> list[list[int]]:
    """Distribute tasks over actors so that their loads are about equal.

    Graham 1969, Bounds on Multiprocessing Timing Anomalies: the costliest remaining task goes to the least loaded actor.

    Args:
        costs: The cost of each task, in any unit.
        actors: The number of actors.

    Returns:
        The numbers of each actor's tasks, ascending, because results are needed in that order.
    """
    shares, load = [list[int]() for _ in range(actors)], [0.0] * actors
    for task in sorted(range(len(costs)), key=lambda task: -costs[task]):
        slot = min(range(actors), key=load.__getitem__)
        shares[slot].append(task)
        load[slot] += costs[task]
    return [sorted(share) for share in shares]


class Schedule:
    """The next call of each actor, as calls return.

    Every actor has a share of the tasks. A call takes two thirds of the cost left in the share, so that there are few
    calls and the last ones are small (Polychronopoulos and Kuck 1987, Guided Self-Scheduling). An idle actor without
    tasks takes some of the largest share. If an actor's calls in flight would exhaust its share, they are merged into
    one call, since other actors could not take any of it.
    """

    def __init__(self, costs: Sequence[float], devices: Sequence[int], actors: int, most_devices: int) -> None:
        """Assign all tasks.

        Args:
            costs: The cost of each task, in any unit.
            devices: The number of devices of each task.
            actors: The number of actors.
            most_devices: The maximum number of devices in a call with several tasks.
        """
        self._costs, self._devices, self._most_devices = list(costs), list(devices), most_devices
        self._shares = [deque(share) for share in assign(costs, actors)]
        self._in_flight = [0] * actors

    def take(self, ready: Sequence[bool]) -> tuple[list[int], int] | None:
        """Return the tasks of the next call and its actor; None if there is no call to make now.

        Args:
            ready: Whether each actor accepts calls; actors that were added after the assignment get none.
        """
        given = zip(ready, self._in_flight, strict=False)
        slots = [slot for slot, (accepts, calls) in enumerate(given) if accepts and calls < AHEAD]
        for slot in sorted(slots, key=self._in_flight.__getitem__):
            share, idle = self._shares[slot], not self._in_flight[slot]
            calls = AHEAD if idle and share and self._is_one_call(share) else 1
            if idle and not share:
                share = max(self._shares, key=self._left)
            if share:
                self._in_flight[slot] += 1
                return [task for _ in range(calls) for task in self._call(share)], slot
        return None

    def back(self, tasks: Sequence[int], slot: int, *, done: bool) -> None:
        """Record the end of a call; if it was lost, its tasks are handed out next."""
        self._in_flight[slot] -= 1
        if not done:
            self._shares[slot].extendleft(reversed(tasks))

    def cut(self, slot: int, costs: Sequence[float]) -> list[int]:
        """Record the loss of a call, and replace its tasks with one task per device.

        Args:
            slot: The actor.
            costs: The cost of each device; each device gets a separate call.

        Returns:
            The numbers of the new tasks.
        """
        first = len(self._costs)
        self._costs += costs
        self._devices += [self._most_devices] * len(costs)  # so that no other task joins its call
        pieces = list(range(first, len(self._costs)))
        self.back(pieces, slot, done=False)
        return pieces

    def _call(self, share: deque[int]) -> list[int]:
        fair, tasks, cost, devices = self._left(share) * 2 / 3, list[int](), 0.0, 0
        while share and (not tasks or (cost < fair and devices + self._devices[share[0]] <= self._most_devices)):
            task = share.popleft()
            tasks.append(task)
            cost, devices = cost + self._costs[task], devices + self._devices[task]
        return tasks

    def _is_one_call(self, share: deque[int]) -> bool:
        """Return whether an idle actor's `AHEAD` calls would exhaust its share, and one call may have all its devices."""
        left = deque(share)
        for _ in range(AHEAD):
            self._call(left)
        return not left and sum(self._devices[task] for task in share) <= self._most_devices

    def _left(self, share: deque[int]) -> float:
        return sum(self._costs[task] for task in share)


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
