"""The work of a device in a round, counted before it trains: calls of each signature, and bytes.

The strategy's `local` runs on an engine that computes nothing, and the device counts its calls. Therefore the clock
decides before training which devices report in time, and devices that do not report need not train.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from odt_sim.data.dataset import Indices
from odt_sim.data.store.columns import Array
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.model.tensors import size_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.messages import Messages
from odt_sim.strategies.base import Tensors

ROUNDS_BEFORE = 2
"""The rounds that are simulated first for a device with a state; by the third round, a strategy's state is complete."""


class EmptyEngine:
    """A stand-in for an interpreter: it stores weights and slots, and returns zeros for everything else.

    A scheduled learning rate is 1, since strategies divide by it. Training changes one parameter of the body, so that
    later embeddings count as computed again.
    """

    def __init__(self, model: TrainableModel) -> None:
        """Start with zeros as weights and slots."""
        self._model = model
        self._kept: dict[str, Array] = {}
        body = [(prod(p.shape), i) for i, p in enumerate(model.parameters) if p.moves and p.group != "head"]
        self._changes = f"a{min(body)[1]}" if body else None  # the smallest parameter, for speed

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Return the values that `restore` and `restore_optimizer_state` set last, or zeros."""
        if signature.startswith("restore"):
            self._kept |= inputs
        elif signature.startswith("train") and self._changes:
            self._kept[self._changes] = self.call("parameters")[self._changes] + 1
        if signature == "schedule":
            return {"learning_rate": np.ones((), np.float32)}
        rows = next((len(value) for value in inputs.values() if np.ndim(value)), 0)
        outputs = self._model.signatures[signature].outputs
        return {name: self._output(name, tensor, rows) for name, tensor in outputs.items()}

    def _output(self, name: str, tensor: Any, rows: int) -> Array:
        shape = tuple(rows if size < 0 else size for size in tensor.shape)
        return self._kept.get(name, np.zeros(shape, tensor.dtype))


@dataclass(frozen=True)
class LocalWork:
    """The work of one device in one round.

    Attributes:
        calls: The number of calls of each signature that trains or infers.
        rows: The number of examples in all calls of each signature.
        bytes_down: Bytes that the device receives.
        bytes_up: Bytes that the device sends.
    """

    calls: Mapping[str, int]
    rows: Mapping[str, int]
    bytes_down: int
    bytes_up: int


class WorkOf:
    """Counts the work of devices.

    Devices with equal numbers of examples and received bytes do the same work if both or neither have a state from an
    earlier round: many strategies do more work for a device with a personal model.
    """

    def __init__(self, job: Job) -> None:
        """Count nothing yet."""
        self._job = replace(job, strategy=copy.deepcopy(job.strategy))
        self._known: dict[tuple[int, ...], LocalWork] = {}

    def __call__(self, device: int, round: int, messages: Messages, *, has_state: bool) -> LocalWork:
        """Return the work of a device with the whole plan.

        Args:
            device: The device's id.
            round: The round in which the device begins, which determines the examples that have arrived.
            messages: What devices receive.
            has_state: Whether the device has a state from an earlier round.

        Raises:
            SimulationError: The strategy failed.
        """
        received = messages.received(device)
        key = (*self._sizes(device, round), size_of(received), has_state)
        if key not in self._known:
            parts = self._job.data.arrived(device, round)[:2]
            self._known[key] = self._count(device, parts, received, ROUNDS_BEFORE if has_state else 0)
        return self._known[key]

    def _sizes(self, device: int, round: int) -> list[int]:
        """Return the numbers of a device's training and validation examples."""
        data = self._job.data
        if data.arrival is None:  # computing a split on demand would cost more than its sizes
            return list[int](np.diff(data.offsets[device]).tolist()[:2])
        return [len(rows) for rows in data.arrived(device, round)[:2]]

    def _count(self, device: int, parts: Sequence[Indices], received: Tensors, before: int) -> LocalWork:
        """Return the work of a device on its examples after `before` rounds with the same message."""
        state: dict[str, Weights | Array] = {}
        with self._job.strategy_errors(f"on device {device}, while counting its work"), np.errstate(all="ignore"):
            for round in range(1, before + 2):
                counted = self._device(device, parts, round)
                counted.state = state
                sent = self._job.strategy.local(counted, received).tensors
                state = counted.state
        calls = counted.calls
        return LocalWork(dict(calls.by_signature), dict(calls.rows), size_of(received), size_of(sent))

    def _device(self, device: int, parts: Sequence[Indices], round: int) -> Device:
        """Return a device that computes nothing."""
        job = self._job
        engine = EmptyEngine(job.model)
        pool = RuntimePool(job.model, start=lambda content, where: engine, edits=False)
        examples = (Examples(job.data.x, job.data.y, rows) for rows in parts)
        return Device(job.model, *examples, seed=job.seed, id=device, round=round, plan=job.plan, pool=pool)
