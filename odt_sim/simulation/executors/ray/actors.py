"""The actors of a job: start them, and replace actors that die."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError

from odt_sim._support.text import counted, first_line
from odt_sim.errors import SimulationError
from odt_sim.simulation.executors.ray.call_errors import LOST, result
from odt_sim.simulation.executors.ray.capacity import node_resources

TRIES = 5  # deaths at one device, or in one slot while no actor starts, until giving up
PATIENCE = 300  # seconds without a running call or a started actor; installing an environment may take minutes
SOON = 30  # seconds without a newly started actor until a job begins with the started ones


@dataclass(eq=False)
class Call:
    """A call to an actor.

    Attributes:
        reference: The reference of its result.
        tasks: The numbers of its tasks.
        slot: The actor's slot.
        actor: The actor.
        node: The id of its node.
        deadly: Whether the actor died by itself during this call, rather than during an earlier one.
    """

    reference: Any
    tasks: list[int]
    slot: int
    actor: Any
    node: str
    deadly: bool = False


class Actors:
    """Actors by slot; a slot is empty while its actor starts, which may have to wait until a node has free resources.

    Attributes:
        slots: The actor of each slot, or None.
    """

    def __init__(self, make: Callable[[], Any], setup: Sequence[Any]) -> None:
        """Start with no slots.

        Args:
            make: Creates an actor.
            setup: The arguments of the actor's method `setup`.
        """
        self.slots: list[Any] = []
        self._nodes: dict[int, str] = {}  # the node of each slot's actor
        self._calls: list[list[Call]] = []  # the calls in flight of each slot, in order
        self._make, self._setup = make, setup
        self._starting: dict[Any, tuple[int, Any]] = {}  # by the reference of its setup: slot, actor
        self._deaths = Counter[int]()  # deaths of starting actors since the last successful start, by slot

    def start(self, idle: Sequence[Any], count: int, at_once: int) -> None:
        """Create slots and wait for their actors.

        If only some actors start, for example after the death of a node, the job begins with those; the others may
        follow.

        Args:
            idle: Actors to use before new ones are created.
            count: The number of slots.
            at_once: The number of actors to start at the same time.

        Raises:
            SimulationError: An actor dies repeatedly, or none starts.
        """
        self.slots, self._calls = [None] * count, [[] for _ in range(count)]
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

    def add(self, count: int) -> None:
        """Create further slots; their actors start while the others work."""
        for slot in range(len(self.slots), len(self.slots) + count):
            self.slots.append(None)
            self._calls.append([])
            self._begin(slot, self._make())

    def wait(self, calls: Collection[Any]) -> Any:
        """Wait until a call has ended, and return its reference, or until an actor has started, and return None.

        Raises:
            SimulationError: An actor dies repeatedly, or none starts and there is no call.
        """
        ready = self._first(calls, None if calls else PATIENCE)
        if ready and ready[0] not in self._starting:
            return ready[0]
        self._end_start(ready)
        return None

    def call(self, slot: int, work: Any, tasks: list[int]) -> Call:
        """Call an actor's method `work`; it runs after the actor's earlier calls."""
        actor = self.slots[slot]
        call = Call(actor.work.remote(work), tasks, slot, actor, self._nodes[slot])
        self._calls[slot].append(call)
        return call

    def done(self, call: Call) -> None:
        """Record that a call has returned."""
        if call in self._calls[call.slot]:
            self._calls[call.slot].remove(call)

    def replace(self, lost: Call, *, died: bool = True) -> None:
        """Replace a lost actor, once for all its calls.

        Args:
            lost: A call that was lost.
            died: Whether the actor died by itself; its first unfinished call is then marked as deadly.
        """
        slot = lost.slot
        if self.slots[slot] is not lost.actor:
            return
        if not node_resources():
            raise SimulationError("backend ray: Ray has died; see its logs in /tmp/ray, then resume the run")
        ray.kill(lost.actor)  # an actor that is only unreachable would keep its resources and its other calls
        if died:
            next((call for call in self._calls[slot] if call is lost or _is_lost(call)), lost).deadly = True
        self._calls[slot] = []
        self._begin(slot, self._make())

    def close(self) -> list[Any]:
        """Kill the actors that are still starting, and return the others."""
        for _, actor in self._starting.values():
            ray.kill(actor)
        self._starting = {}
        return [actor for actor in self.slots if actor is not None]

    def _first(self, calls: Collection[Any], seconds: float | None) -> list[Any]:
        ready: list[Any]
        ready, _ = ray.wait([*calls, *self._starting], num_returns=1, timeout=seconds)
        return ready

    def _begin(self, slot: int, actor: Any) -> None:
        self.slots[slot] = None
        self._starting[actor.setup.remote(*self._setup)] = slot, actor

    def _end_start(self, ready: list[Any]) -> None:
        """Record that an actor has started, or replace it if it died."""
        if not ready:
            raise SimulationError(
                f"backend ray: {counted(len(self._starting), 'worker')} did not start within {PATIENCE} s; check the "
                "nodes of the cluster (ray status), then resume the run"
            )
        setup = ready[0]
        slot, actor = self._starting.pop(setup)
        try:
            self._nodes[slot] = result(setup)
            self.slots[slot] = actor
            self._deaths.clear()
        except LOST as error:
            self._deaths[slot] += isinstance(error, ActorDiedError)
            if self._deaths[slot] == TRIES:
                raise SimulationError(
                    f"backend ray: a worker died {TRIES} times while starting ({first_line(error)}); "
                    "run it with backend=serial to see why"
                ) from error
            self._begin(slot, self._make())


def _is_lost(call: Call) -> bool:
    """Return whether a dead actor did not finish a call; the result of a finished call may still be unread."""
    try:
        ray.get(call.reference)
    except LOST:
        return True
    except RayError:  # raised again when the result is read
        return False
    return False
