"""The actors of a job: how they start, and start again where one dies."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from odt_sim.errors import SimulationError
from odt_sim.simulation.ray.call_errors import LOST, is_workers, one_line, result

TRIES = 5  # of a device, or of starting actors while none starts, before it is given up: so many kills are no accident
PATIENCE = 300  # seconds in which nothing runs and no actor starts; installing an environment may take minutes
SOON = 30  # seconds in which no further actor starts, until a job begins with those that are there


@dataclass(eq=False)
class Call:
    """What an actor was given to do.

    Attributes:
        reference: Of its result.
        tasks: The numbers of its tasks.
        slot: Its actor's.
        actor: Its actor.
        until: When it is to be done, as `time.monotonic` has it; infinite for whenever.
        deadly: Whether the actor died at it, of itself, and not at one that it was given before.
    """

    reference: Any
    tasks: list[int]
    slot: int
    actor: Any
    until: float
    deadly: bool = False


class Actors:
    """Actors by slot; a slot has none while its actor starts, which may take until a node has room.

    Attributes:
        slots: For each slot its actor, or None.
    """

    def __init__(self, make: Callable[[], Any], setup: Sequence[Any]) -> None:
        """Has no slots yet.

        Args:
            make: Makes an actor.
            setup: The arguments of the actor's method `setup`.
        """
        self.slots: list[Any] = []
        self._given: list[list[Call]] = []  # for each slot the calls whose results were not taken yet, in order
        self._make, self._setup = make, setup
        self._starting: dict[Any, tuple[int, Any]] = {}  # by the reference of its setup: slot, actor
        self._deaths = Counter[int]()  # of actors while they start, by slot, since one has started

    def start(self, idle: Sequence[Any], count: int, at_once: int) -> None:
        """Makes slots and waits until all have their actors.

        Where some have and no other comes for long, as on a node that has just died, those are enough: the others come when
        there is room.

        Args:
            idle: Actors to take before new ones are made.
            count: How many slots.
            at_once: How many actors may start at the same time.

        Raises:
            SimulationError: An actor dies again and again, or none starts for long.
        """
        self.slots, self._given = [None] * count, [[] for _ in range(count)]
        enough = False
        for first in range(0, count, at_once):
            for slot in range(first, min(first + at_once, count)):
                self._begin(slot, idle[slot] if slot < len(idle) else self._make())
            while self._starting and not enough:
                some = any(actor is not None for actor in self.slots)
                ready = self._first((), SOON if some else PATIENCE)
                if some and not ready:
                    enough = True
                else:
                    self._end_start(ready)

    def wait(self, calls: Collection[Any]) -> Any:
        """Waits until a call has ended, whose reference is returned, or an actor has started: then None.

        Raises:
            SimulationError: An actor dies again and again, or none starts for long where there is no call.
        """
        ready = self._first(calls, PATIENCE)
        if ready and ready[0] not in self._starting:
            return ready[0]
        self._end_start(ready)
        return None

    def call(self, slot: int, work: Any, tasks: list[int], seconds: float = math.inf) -> Call:
        """Gives work to an actor, which does it once it has done what it was given before, be it of another round.

        Args:
            slot: The actor's.
            work: What its method `work` takes.
            tasks: The numbers of the tasks.
            seconds: How long it may take; an actor that takes longer is ended while somebody waits.
        """
        actor, given = self.slots[slot], self._given[slot]
        begins = max([time.monotonic(), *(call.until for call in given)])
        call = Call(actor.work.remote(work), tasks, slot, actor, begins + seconds)
        given.append(call)
        return call

    def taken(self, call: Call) -> None:
        """Takes note that a call is done."""
        if call in self._given[call.slot]:
            self._given[call.slot].remove(call)

    def replace(self, lost: Call, *, died: bool = True) -> None:
        """Starts an actor in the place of a lost one, no matter which of its calls tells first.

        Args:
            lost: The call that tells.
            died: Whether the actor has died of itself: then the call that it died at is marked as the deadly one.
        """
        slot = lost.slot
        if self.slots[slot] is not lost.actor:
            return
        ray.kill(lost.actor)  # else one that is only out of reach may keep its place and its other calls for ever
        if died:
            next((call for call in self._given[slot] if call is lost or _is_lost(call)), lost).deadly = True
        self._given[slot] = []
        self._begin(slot, self._make())

    def close(self) -> list[Any]:
        """Ends those that are still starting, and returns the others."""
        for _, actor in self._starting.values():
            ray.kill(actor)
        self._starting = {}
        return [actor for actor in self.slots if actor is not None]

    def _first(self, calls: Collection[Any], patience: float) -> list[Any]:
        """Returns what is ready first, and ends the actors that are overdue: those are ready soon.

        Where there is no call, nothing may be ready within the seconds of patience.
        """
        while True:
            until = min((call.until for given in self._given for call in given), default=math.inf)
            left = None if until == math.inf else max(0.0, until - time.monotonic())
            ready: list[Any]
            ready, _ = ray.wait([*calls, *self._starting], num_returns=1, timeout=left if calls else patience)
            if ready or not calls:
                return ready
            self._end_overdue()

    def _end_overdue(self) -> None:
        for call in [call for given in self._given for call in given if call.until <= time.monotonic()]:
            if ray.wait([call.reference], timeout=0)[0]:
                self._given[call.slot].remove(call)  # it is done, and nobody has taken it yet
            else:
                call.until = math.inf
                ray.kill(call.actor)

    def _begin(self, slot: int, actor: Any) -> None:
        self.slots[slot] = None
        self._starting[actor.setup.remote(*self._setup)] = slot, actor

    def _end_start(self, ready: list[Any]) -> None:
        """Ends the start of an actor, which may have died; where none is ready, none will be."""
        if not ready:
            raise SimulationError(
                f"backend ray: {len(self._starting)} workers have not started for {PATIENCE} s; look at the nodes of the "
                "cluster (ray status), then go on with the run"
            )
        setup = ready[0]
        slot, actor = self._starting.pop(setup)
        try:
            result(setup)
            self.slots[slot] = actor
            self._deaths.clear()
        except LOST as error:
            self._deaths[slot] += is_workers(error)
            if self._deaths[slot] == TRIES:
                raise SimulationError(
                    f"backend ray: a worker died {TRIES} times while starting ({one_line(error)}); "
                    "run it with backend=serial to see why"
                ) from error
            self._begin(slot, self._make())


def _is_lost(call: Call) -> bool:
    """Whether a dead actor did not end a call; what it had ended may still wait to be taken."""
    try:
        ray.get(call.reference)
    except LOST:
        return True
    except RayError:  # which whoever takes it raises
        return False
    return False
