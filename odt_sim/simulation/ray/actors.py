"""The actors of a job: how they start, and start again where one dies."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import ray

from odt_sim.errors import SimulationError
from odt_sim.simulation.ray.result import LOST, one_line, result

TRIES = 3  # of a block or of starting an actor, before the run gives up
PATIENCE = 300  # seconds in which nothing runs and no actor starts; installing an environment may take minutes


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
        self._make, self._setup = make, setup
        self._starting: dict[Any, tuple[int, Any, int]] = {}  # by the reference of its setup: slot, actor, tries

    def start(self, idle: Sequence[Any], count: int, at_once: int) -> None:
        """Makes slots and waits until all have their actors.

        Args:
            idle: Actors to take before new ones are made.
            count: How many slots.
            at_once: How many actors may start at the same time.

        Raises:
            SimulationError: An actor dies again and again, or none starts for long.
        """
        self.slots = [None] * count
        for first in range(0, count, at_once):
            for slot in range(first, min(first + at_once, count)):
                self._begin(slot, idle[slot] if slot < len(idle) else self._make())
            while self._starting:
                self.wait(())

    def wait(self, calls: Collection[Any]) -> Any:
        """Waits until a call has ended, whose reference is returned, or an actor has started: then None.

        Raises:
            SimulationError: An actor dies again and again, or none starts for long where there is no call.
        """
        ready, _ = ray.wait([*calls, *self._starting], num_returns=1, timeout=None if calls else PATIENCE)
        if not ready:
            raise SimulationError(
                f"backend ray: {len(self._starting)} workers have not started for {PATIENCE} s; look at the nodes of the "
                "cluster (ray status), then go on with the run"
            )
        if ready[0] not in self._starting:
            return ready[0]
        self._end_start(ready[0])
        return None

    def replace(self, slot: int, dead: Any) -> bool:
        """Starts an actor in the place of a dead one; returns whether it had not been replaced before."""
        if self.slots[slot] is not dead:
            return False
        self._begin(slot, self._make())
        return True

    def close(self) -> list[Any]:
        """Ends those that are still starting, and returns the others."""
        for _, actor, _ in self._starting.values():
            ray.kill(actor)
        self._starting = {}
        return [actor for actor in self.slots if actor is not None]

    def _begin(self, slot: int, actor: Any, tries: int = 1) -> None:
        self.slots[slot] = None
        self._starting[actor.setup.remote(*self._setup)] = slot, actor, tries

    def _end_start(self, setup: Any) -> None:
        slot, actor, tries = self._starting.pop(setup)
        try:
            result(setup)
            self.slots[slot] = actor
        except LOST as error:
            if tries == TRIES:
                raise SimulationError(
                    f"backend ray: a worker died {TRIES} times while starting ({one_line(error)}); "
                    "run it with backend=serial to see why"
                ) from error
            self._begin(slot, self._make(), tries + 1)
