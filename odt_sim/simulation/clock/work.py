"""The work of a device in a round, counted before it trains: calls of each signature, and bytes.

The strategy's own `local` runs on an engine that computes nothing and counts its calls. So the clock decides before any
training who reports in time, and devices that do not report need not train.
"""

import copy
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.model.trainable import TrainableModel
from odt_sim.simulation.job import Job
from odt_sim.strategies.base import Tensors, array_of

Array = NDArray[Any]


class CountingEngine:
    """Stands for an interpreter: keeps the weights and slots that it is given, returns zeros, and counts.

    Attributes:
        calls: The calls of each signature.
        rows: The rows of all calls of each signature.
    """

    def __init__(self, model: TrainableModel) -> None:
        """Start with zeros as weights and slots."""
        self._model = model
        self._kept: dict[str, Array] = {}
        self.calls, self.rows = Counter[str](), Counter[str]()

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Count a call, and return what `restore` and `restore_optimizer_state` set last, or zeros."""
        batch = next((len(value) for name, value in inputs.items() if name in ("x", "embedding")), 0)
        self.calls[signature] += 1
        self.rows[signature] += batch
        if signature.startswith("restore"):
            self._kept |= inputs
        outputs = self._model.signatures[signature].outputs
        return {name: self._output(name, tensor, batch) for name, tensor in outputs.items()}

    def _output(self, name: str, tensor: Any, batch: int) -> Array:
        shape = tuple(batch if size < 0 else size for size in tensor.shape)
        return self._kept.get(name, np.zeros(shape, tensor.dtype))


@dataclass(frozen=True)
class LocalWork:
    """The work of one device in one round.

    Attributes:
        calls: Calls of each signature that trains or infers.
        rows: Rows of all calls of each.
        bytes_down: Bytes that it receives.
        bytes_up: Bytes that it sends.
    """

    calls: dict[str, int]
    rows: dict[str, int]
    bytes_down: int
    bytes_up: int


UNTIMED = ("parameters", "restore", "optimizer_state", "restore_optimizer_state", "set_gradient_offset")
"""Signatures that move weights; their time is not counted."""


class WorkOf:
    """Counts the work of devices; devices with as many batches of training and validation examples do the same."""

    def __init__(self, job: Job) -> None:
        """Count nothing yet."""
        self._job = replace(job, strategy=copy.deepcopy(job.strategy))
        self._known: dict[tuple[int, ...], LocalWork] = {}

    def __call__(self, device: int, broadcast: Tensors, units: int) -> LocalWork:
        """Return the work of a device.

        Args:
            device: Its id.
            broadcast: The server's broadcast.
            units: Epochs or steps.

        Raises:
            SimulationError: The strategy failed.
        """
        batch, data = self._job.model.batch_size, self._job.data
        sizes = (len(data.train(device)), len(data.validation(device)))
        key = (*(math.ceil(size / batch) for size in sizes), units)
        if key not in self._known:
            self._known[key] = self._count(device, broadcast, units)
        return self._known[key]

    def _count(self, device: int, broadcast: Tensors, units: int) -> LocalWork:
        job = self._job
        engine = CountingEngine(job.model)
        pool = RuntimePool(job.model, start=lambda content, where: engine)
        examples = (Examples(job.data.x, job.data.y, rows) for rows in job.data.parts(device)[:2])
        with job.strategy_errors(f"on device {device}, counting its work"), np.errstate(all="ignore"):
            counted = Device(
                job.model, *examples, seed=job.seed, id=device, round=1, plan=job.plan.of(units), pool=pool
            )
            received = job.strategy.message(broadcast, device)
            update = job.strategy.local(counted, received)
        timed = [name for name in engine.calls if name not in UNTIMED]
        return LocalWork(
            {name: engine.calls[name] for name in timed},
            {name: engine.rows[name] for name in timed},
            _bytes(received),
            _bytes(update.tensors),
        )


def _bytes(tensors: Tensors) -> int:
    return sum(array_of(tensor).nbytes for tensor in tensors.values())
