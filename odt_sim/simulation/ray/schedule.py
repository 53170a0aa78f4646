"""Which actor does which tasks next: counting only, no clock and no Ray."""

from collections import deque
from collections.abc import Sequence

AHEAD = 2
"""The calls given to an actor at once, so that it never waits for the coordinator."""


def assign(costs: Sequence[float], actors: int) -> list[list[int]]:
    """Spreads tasks over actors so that all have about as much to do.

    Graham 1969, Bounds on Multiprocessing Timing Anomalies: the costliest task that is left goes to whoever has least.

    Args:
        costs: What each task costs, in any unit.
        actors: How many there are.

    Returns:
        For each actor the numbers of its tasks, ascending: results are wanted in that order.
    """
    shares, load = [list[int]() for _ in range(actors)], [0.0] * actors
    for task in sorted(range(len(costs)), key=lambda task: -costs[task]):
        slot = min(range(actors), key=load.__getitem__)
        shares[slot].append(task)
        load[slot] += costs[task]
    return [sorted(share) for share in shares]


class Schedule:
    """Says what to hand out to whom, as calls come back.

    Every actor has a share of the tasks. A call takes two thirds of what is left of it, so that calls are few and the last
    ones small (Polychronopoulos and Kuck 1987, Guided Self-Scheduling): who has done its own does what is left of others'.
    """

    def __init__(self, costs: Sequence[float], devices: Sequence[int], actors: int, most_devices: int) -> None:
        """Has handed out nothing yet.

        Args:
            costs: What each task costs, in any unit.
            devices: How many devices each task is about.
            actors: How many there are.
            most_devices: The most devices of a call of several tasks.
        """
        self._costs, self._devices, self._most_devices = list(costs), list(devices), most_devices
        self._shares = [deque(share) for share in assign(costs, actors)]
        self._under_way = [0] * actors

    def take(self, ready: Sequence[bool]) -> tuple[list[int], int] | None:
        """Returns the tasks of the next call and its actor; None where nothing is to be handed out now.

        Args:
            ready: Which actors take calls.
        """
        slots = [slot for slot, takes in enumerate(ready) if takes and self._under_way[slot] < AHEAD]
        for slot in sorted(slots, key=self._under_way.__getitem__):
            share = self._shares[slot]
            if not self._under_way[slot] and not share:
                share = max(self._shares, key=self._left)
            if share:
                self._under_way[slot] += 1
                return self._call(share), slot
        return None

    def back(self, tasks: Sequence[int], slot: int, *, done: bool) -> None:
        """Takes note that an actor has done a call, or has died with it: then its tasks are the next to be handed out."""
        self._under_way[slot] -= 1
        if not done:
            self._shares[slot].extendleft(reversed(tasks))

    def cut(self, slot: int, costs: Sequence[float]) -> list[int]:
        """Takes note that an actor has died with a call whose tasks are done device by device from now on.

        Args:
            slot: The actor.
            costs: What each device costs; each is a call of its own.

        Returns:
            The numbers of the tasks that the devices are.
        """
        first = len(self._costs)
        self._costs += costs
        self._devices += [self._most_devices] * len(costs)  # so that no other task goes with it
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

    def _left(self, share: deque[int]) -> float:
        return sum(self._costs[task] for task in share)


class OwnActors:
    """The schedule of actors that each do one task, its own; some of them run at once."""

    def __init__(self, actors: Sequence[int], most_running: int) -> None:
        """Has handed out nothing yet.

        Args:
            actors: The actor of each task.
            most_running: How many are under way at once.
        """
        self._actors, self._left = actors, most_running
        self._waiting = deque(range(len(actors)))

    def take(self, ready: Sequence[bool]) -> tuple[list[int], int] | None:
        """Returns the next task and its actor; None where nothing is to be handed out now.

        Args:
            ready: Which actors take calls.
        """
        task = next((task for task in self._waiting if ready[self._actors[task]]), None) if self._left else None
        if task is None:
            return None
        self._left -= 1
        self._waiting.remove(task)
        return [task], self._actors[task]

    def back(self, tasks: Sequence[int], slot: int, *, done: bool) -> None:
        """Takes note that an actor has done its task, or has died with it."""
        self._left += 1
        if not done:
            self._waiting.extendleft(tasks)
