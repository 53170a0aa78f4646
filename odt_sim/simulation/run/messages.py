"""The server's messages: a broadcast that all devices share, and messages that a strategy computes for single devices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from odt_sim.model.tensors import read_only, size_of
from odt_sim.simulation.executors.job import Job, Message, Task
from odt_sim.simulation.run.sums import check_tensors
from odt_sim.strategies.base import ServerState, Strategy, Tensors


class Messages:
    """The messages of a server's state. A message for a single device is computed when the device's block starts.

    Attributes:
        broadcast: The tensors that are sent to each worker once.
    """

    def __init__(self, job: Job, state: ServerState) -> None:
        """Compute nothing yet.

        Args:
            job: The run's job.
            state: The server's state.
        """
        self.broadcast = state.broadcast
        self._job, self._state = job, state
        self._sizes: dict[int, int] = {}

    def addressed(self, task: Task) -> Task:
        """Return a task with its devices' messages; unchanged if the strategy has no messages for single devices.

        Raises:
            SimulationError: The strategy failed.
        """
        if not differ(self._job.strategy):
            return task
        return replace(task, messages={device: self._message(device) for device in task.devices})

    def received(self, device: int) -> Tensors:
        """Return the tensors that one device receives, read-only.

        Raises:
            SimulationError: The strategy failed.
        """
        strategy, state = self._job.strategy, self._read_only
        if not differ(strategy):
            return state.broadcast
        with self._job.strategy_errors(f"in message for device {device}"):
            message = strategy.message(state, device)
            if not isinstance(message, Mapping):
                raise TypeError(f"it returned {type(message).__name__}, expected a mapping of tensors")
            check_tensors(message, "the message's")
        self._sizes[device] = size_of(message)
        return message

    def bytes(self, devices: Iterable[int]) -> int:
        """Return the total number of bytes that devices receive.

        Raises:
            SimulationError: The strategy failed.
        """
        if not differ(self._job.strategy):
            return size_of(self.broadcast) * len(list(devices))
        return sum(self._sizes[id] if id in self._sizes else size_of(self.received(id)) for id in devices)

    @cached_property
    def _read_only(self) -> ServerState:
        return ServerState(read_only(self._state.broadcast), read_only(self._state.private))

    @cached_property
    def _names(self) -> Mapping[int, str]:
        """The names of the broadcast's tensors, by the tensors' `id()`."""
        return {id(tensor): name for name, tensor in self._read_only.broadcast.items()}

    def _message(self, device: int) -> Message:
        """Return a device's message; it refers to the broadcast's tensors by name, so that blocks need not carry them."""
        received, names = self.received(device), self._names
        shared = {name: names[id(tensor)] for name, tensor in received.items() if id(tensor) in names}
        return Message(shared, {name: tensor for name, tensor in received.items() if name not in shared})


class Assignment(NamedTuple):
    """Blocks whose devices receive messages of one state of the server.

    Attributes:
        tasks: The blocks.
        messages: The messages.
    """

    tasks: Sequence[Task]
    messages: Messages

    @property
    def trains(self) -> bool:
        """Whether its devices train; otherwise they are evaluated."""
        return any(task.kind == "train" for task in self.tasks[:1])


def differ(strategy: Strategy) -> bool:
    """Return whether a strategy has messages for single devices."""
    return type(strategy).message is not Strategy.message
