"""Timing of a model's signatures in Python on this machine, measured as on a phone."""

import time
from collections.abc import Callable

import numpy as np

from odt_sim.device.runtime import Runtime, inputs_of
from odt_sim.fleet.profile import Timing
from odt_sim.phone.recording import training_inputs
from odt_sim.phone.subject import Subject

WARM_UP = 5
SECONDS = 1.0
FEWEST, MOST = 5, 500


def measure(subject: Subject) -> dict[str, Timing]:
    """Return the timings of `train` and `infer` with a full batch.

    Raises:
        ModelError: LiteRT cannot run the file.
    """
    runtime, batch = Runtime(subject.model), subject.batches[0]
    inputs = training_inputs(subject, "train", batch, mu=0.0)
    rows = inputs_of(subject.model, "infer", batch.x)
    return {
        "train": _timed(lambda: runtime.call("train", **inputs), len(batch.x)),
        "infer": _timed(lambda: runtime.call("infer", **rows), len(batch.x)),
    }


def _timed(call: Callable[[], object], rows: int) -> Timing:
    for _ in range(WARM_UP):
        call()
    milliseconds: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(milliseconds) < FEWEST or (time.perf_counter() < end and len(milliseconds) < MOST):
        start = time.perf_counter()
        call()
        milliseconds.append(1000 * (time.perf_counter() - start))
    lower, median, upper = np.quantile(milliseconds, (0.25, 0.5, 0.75)).tolist()
    return Timing(rows, median, lower, upper, len(milliseconds))
