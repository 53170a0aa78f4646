"""Backend whose devices are the nodes of a Flower federation."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from odt_sim._support.text import counted
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.flower.client import described
from odt_sim.flower.messages import ACTION, body_of, content_of, task_content, trained_of
from odt_sim.simulation.evaluation import Row, unmeasured
from odt_sim.simulation.exclusion import TIMED_OUT
from odt_sim.simulation.job import Job, Task, Trained
from odt_sim.simulation.messages import Messages
from odt_sim.simulation.sums import join

POLL = 0.1  # seconds between polls for replies; Flower's own wait takes 3 s

Reply: TypeAlias = RecordDict | str
"""The content of a node's reply, or the reason why it is missing."""


class FlowerBackend:
    """Backend that sends each device's part of a task to its node; nodes store the states of their devices."""

    devices_leave = True

    def __init__(self, grid: Grid) -> None:
        """Set the grid of nodes; send nothing yet."""
        self._grid = grid
        self._job: Job | None = None
        self._nodes: dict[int, int] = {}  # by device
        self._evaluated: dict[int, set[int]] = {}  # by device, rounds of evaluated states: one is reported

    def start(self) -> None:
        """Do nothing."""

    def open(self, job: Job) -> None:
        """Wait until each device has a node, and check that all nodes have the run's settings.

        Raises:
            ConfigurationError: A node has different settings, or two nodes are the same device.
            SimulationError: A node fails.
        """
        self._job, devices = job, job.data.devices
        shown = -1
        while len(nodes := sorted(self._grid.get_node_ids())) < devices:
            if len(nodes) != shown:
                print(f"waiting for Flower nodes: {len(nodes)} of {devices} connected", file=sys.stderr, flush=True)
                shown = len(nodes)
            time.sleep(POLL)
        replies = self._replies({id: Message(content_of({}), id, f"query.{ACTION}") for id in nodes}, None)
        for node, reply in replies.items():
            if isinstance(reply, str):
                raise SimulationError(f"flower: node {node} failed: {reply}")
            self._add(node, **body_of(reply))

    def _add(self, node: int, device: int, settings: Mapping[str, str], layouts: Any) -> None:
        assert self._job is not None
        own = described(self._job)
        for name in sorted(own.keys() | settings.keys()):
            if own.get(name) != settings.get(name):
                raise ConfigurationError(
                    f"flower: device {device} has {name} {settings.get(name)}, but the server has {own.get(name)}; "
                    "pass the same arguments to client_app and server_app"
                )
        if device in self._nodes:
            raise ConfigurationError(
                f"flower: two nodes have the partition-id {device}; give each node its own, and use at most "
                f"{counted(self._job.data.devices, 'node')}"
            )
        self._nodes[device] = node

    def train(self, tasks: Sequence[Task], messages: Messages) -> Iterator[Trained]:
        """Train the devices of all blocks concurrently."""
        job = self._opened()
        replies = self._ask("train", tasks, messages)
        for task in tasks:
            yield join([_trained(job, device, replies.pop(device)) for device in task.devices])

    def evaluate(self, tasks: Sequence[Task], messages: Messages) -> Iterator[list[Row]]:
        """Evaluate the devices of all blocks concurrently; nodes keep the states until the run ends, for the report."""
        job = self._opened()
        for task in tasks:
            for device, version in task.versions.items():
                self._evaluated.setdefault(device, set()).add(version.round)
        replies = self._ask("evaluate", tasks, messages)
        for task in tasks:
            yield [row for device in task.devices for row in _rows(job, device, replies.pop(device))]

    def close(self) -> None:
        """Drop the job and the nodes."""
        self._job, self._nodes = None, {}

    def _opened(self) -> Job:
        if self._job is None:
            raise SimulationError("backend flower: no job is open; call open first")
        return self._job

    def _ask(self, category: str, tasks: Sequence[Task], messages: Messages) -> dict[int, Reply]:
        """Send the devices of tasks their parts, and return the replies by device."""
        asked = {}
        for task in map(messages.addressed, tasks):
            for device in task.devices:
                content = task_content(task, device, messages.broadcast, self._evaluated.get(device, set()))
                asked[device] = Message(content, self._nodes[device], f"{category}.{ACTION}")
        return self._replies(asked, self._opened().fleet.timeout)

    def _replies(self, messages: Mapping[int, Message], timeout: float | None) -> dict[int, Reply]:
        """Send messages and return the replies, by the messages' keys.

        Args:
            messages: The messages.
            timeout: Seconds to wait; None for Flower's time to live.
        """
        ids = list(self._grid.push_messages(list(messages.values())))
        missing = dict(zip(ids, messages, strict=True))
        replies: dict[int, Reply] = dict.fromkeys(messages, TIMED_OUT)
        until = None if timeout is None else time.monotonic() + timeout
        while missing and (until is None or time.monotonic() < until):
            for reply in self._grid.pull_messages(list(missing)):
                key = missing.pop(reply.metadata.reply_to_message_id)
                replies[key] = f"node failed: {reply.error.reason}" if reply.has_error() else reply.content
            time.sleep(POLL if missing else 0)
        return replies


def _trained(job: Job, device: int, reply: Reply) -> Trained:
    """Return a device's outcome; a device whose node failed is excluded."""
    if isinstance(reply, str):
        return Trained(excluded={device: reply})
    _check(reply)
    return trained_of(reply, job.model)


def _rows(job: Job, device: int, reply: Reply) -> list[Row]:
    if isinstance(reply, str):
        return [unmeasured(job.data, device, reply)]
    _check(reply)
    return list(body_of(reply)["rows"])


def _check(reply: RecordDict) -> None:
    """Raise the failure in a reply if it is not the device's own."""
    failure = body_of(reply).get("failure")
    if failure:
        raise SimulationError(failure)
