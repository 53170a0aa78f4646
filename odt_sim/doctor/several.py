"""Experiments on a file of odt_sim with several inputs or outputs; their results are in the form of `experiments`."""

from typing import Any

import numpy as np

from odt_sim._support.system import peak_memory
from odt_sim.device.batches import Batch, batches
from odt_sim.device.random_rows import random_rows
from odt_sim.device.runtime import Runtime
from odt_sim.doctor.subject import RATE, Subject
from odt_sim.doctor.timing import milliseconds
from odt_sim.doctor.weight_changes import weight_changes
from odt_sim.model.trainable import TrainableModel

EXPERIMENTS = ("load", "declared", "step", "order", "speed")
"""The experiments that fit such files; the loss is not compared, since the manifest names it."""

STEPS = 5


def step(subject: Subject) -> dict[str, Any]:
    """Take steps and return the names of weights that never change, and of weights that become NaN or infinite."""
    runtime, batches = _started(subject)
    steps = (runtime.train([batch], [float(RATE)]) for batch in batches)
    return weight_changes(lambda: runtime.call("parameters"), steps)


def speed(subject: Subject) -> dict[str, Any]:
    """Time the step and the inference, and measure the peak memory of this process, Python included."""
    runtime, [batch, *_] = _started(subject)
    infer = milliseconds(lambda: runtime.infer(batch.x))
    train = milliseconds(lambda: runtime.train([batch], [float(RATE)]))
    return {"rows": len(batch.x), "infer_ms": infer, "train_ms": train, "bytes": peak_memory()}


def _started(subject: Subject) -> tuple[Runtime, list[Batch]]:
    """Return a fresh runtime, and batches of random rows."""
    model = TrainableModel.from_content(subject.content, where=subject.where, flex=subject.runtime.runs_flex)
    rows = random_rows(model, np.random.default_rng(2), STEPS * model.batch_size)
    return Runtime(model, subject.runtime), list(batches(model, *rows))
