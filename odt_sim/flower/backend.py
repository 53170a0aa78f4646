"""Backend whose devices are the nodes of a Flower federation, and the `ServerApp` of a strategy of odt_sim."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from odt_sim._support.text import counted
from odt_sim.data.devices.federated import FederatedData
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.flower.client import described
from odt_sim.flower.messages import ACTION, body_of, content_of, task_content, trained_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.observers.base import Observer
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job, Trained
from odt_sim.simulation.run.coordinator import Simulation
from odt_sim.simulation.run.evaluation import unmeasured
from odt_sim.simulation.run.exclusion import TIMED_OUT
from odt_sim.simulation.run.messages import Assignment
from odt_sim.simulation.run.sums import joined
from odt_sim.strategies.base import Strategy

POLL = 0.1  # seconds between polls for replies; Flower's own wait takes 3 s

Reply: TypeAlias = RecordDict | str
"""The content of a node's reply, or the reason why it is missing."""


class FlowerBackend(Executor):
    """Backend that sends each device's part of a task to its node; nodes store the states of their devices."""

    devices_leave = True

    def __init__(self, grid: Grid) -> None:
        """Set the grid of nodes; send nothing yet."""
        self._grid = grid
        self._job: Job | None = None
        self._nodes: dict[int, int] = {}  # by device
        self._evaluated: dict[int, set[int]] = {}  # by device, rounds of evaluated states: one is reported

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

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run the devices of all blocks at once; nodes keep evaluated states until the run ends, for the report."""
        if self._job is None:
            raise SimulationError("backend flower: no job is open; call open first")
        job, tasks = self._job, assignment.tasks
        if not assignment.trains:
            for device, version in (pair for task in tasks for pair in task.versions.items()):
                self._evaluated.setdefault(device, set()).add(version.round)
        replies = self._ask("train" if assignment.trains else "evaluate", assignment, job.fleet.timeout)
        for task in tasks:
            parts = (_result(job, id, replies.pop(id), training=assignment.trains) for id in task.devices)
            take(joined(task, list(parts)))

    def close(self) -> None:
        """Drop the job and the nodes."""
        self._job, self._nodes = None, {}

    def _ask(self, category: str, assignment: Assignment, timeout: float | None) -> dict[int, Reply]:
        """Send the devices of tasks their parts, and return the replies by device."""
        asked = {}
        tasks, messages = assignment
        for task in map(messages.addressed, tasks):
            for device in task.devices:
                content = task_content(task, device, messages.broadcast, self._evaluated.get(device, set()))
                asked[device] = Message(content, self._nodes[device], f"{category}.{ACTION}")
        return self._replies(asked, timeout)

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


def _result(job: Job, device: int, reply: Reply, *, training: bool) -> Any:
    """Return a device's outcome, or its row in a list; a device whose node failed is excluded.

    Raises:
        SimulationError: A failure that is not the device's own.
    """
    if isinstance(reply, str):
        return Trained(excluded={device: reply}) if training else [unmeasured(job.data, device, reply)]
    if failure := body_of(reply).get("failure"):
        raise SimulationError(failure)
    return trained_of(reply, job.model) if training else body_of(reply)["rows"]


def server_app(
    model: TrainableModel,
    data: FederatedData,
    strategy: Strategy,
    *,
    rounds: int,
    directory: str | PathLike[str],
    observers: Sequence[Observer] | None = None,
    **settings: Any,
) -> ServerApp:
    """Return an app that runs a strategy over nodes of `client_app`, one per device.

    The run's folder contains the same records and, bit for bit, the same model as a run of `Simulation`. Devices'
    states stay on their nodes and are lost at the end of Flower's run, so the run cannot be resumed.

    Args:
        model: The model that all devices train.
        data: The devices' examples. The server only uses their numbers; the nodes train on their own copies.
        strategy: The personalization algorithm.
        rounds: The number of rounds, at least 1.
        directory: The run's folder.
        observers: The observers of the run, as in `Simulation.run`.
        **settings: Further arguments of `Simulation`: `fleet`, `plan`, `seed`, `aggregator`, `attack`, `evaluate_every`,
            `target`. The first five must equal those of `client_app`.

    Raises:
        ConfigurationError: `resume` is set.
    """
    if settings.pop("resume", False):
        raise ConfigurationError(
            "flower: device states are lost when the Flower run ends, so it cannot be resumed; start a new run"
        )

    def main(grid: Grid, context: Context) -> None:
        backend = FlowerBackend(grid)
        run = Simulation(model, data, strategy, rounds=rounds, directory=directory, backend=backend, **settings)
        run.run(observers=observers)

    app = ServerApp()
    app.main()(main)
    return app
