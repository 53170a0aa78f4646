"""What a written file scores on examples, and how long it takes."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, SignatureRunner
from numpy.typing import NDArray

from odt_sim.device.batches import padded
from odt_sim.device.examples import Examples
from odt_sim.device.native_output import quiet
from odt_sim.errors import ModelError
from odt_sim.metrics.device import model_figures
from odt_sim.model.trainable import TrainableModel

CALLS = 10
"""The smallest number of calls that are timed, after a first one."""


@dataclass(frozen=True)
class Measured:
    """What a file scores.

    Attributes:
        bytes: The file's size.
        figures: `examples`, `loss`, and the metrics of the task.
        rows: The rows of one call of `infer`.
        milliseconds: The median time of one call, with one thread on this machine.
    """

    bytes: int
    figures: Mapping[str, float]
    rows: int
    milliseconds: float


def measured(content: bytes, model: TrainableModel, examples: Examples, where: str) -> Measured:
    """Run a file's `infer` on examples.

    Args:
        content: The file.
        model: The model that it was made of.
        examples: At least one.
        where: The file's name, for errors.

    Raises:
        ModelError: LiteRT cannot run the file.
    """
    x, y = examples.take()
    declared = model.signatures["infer"].inputs["x"].shape[0]
    rows = declared if declared > 0 else model.batch_size
    batches = [padded(x[start : start + rows], rows) for start in range(0, len(x), rows)]
    try:
        with quiet():
            infer = Interpreter(model_content=content, num_threads=1).get_signature_runner("infer")
            outputs, seconds = _run(infer, batches, model.output.name)
    except (ValueError, RuntimeError) as error:
        raise ModelError(
            f"{where}: LiteRT cannot run it ({' '.join(str(error).split())}); leave its format out"
        ) from error
    found = model_figures(model, {"": outputs[: len(x)]}, {"": y})
    return Measured(len(content), found, rows, 1000 * median(seconds))


def _run(infer: SignatureRunner, batches: list[NDArray[Any]], output: str) -> tuple[NDArray[np.float32], list[float]]:
    """Return the outputs of all batches, and the seconds of each call."""
    infer(x=batches[0])  # the first call allocates
    outputs, seconds = [], []
    for i in range(max(len(batches), CALLS)):
        started = time.perf_counter()
        result = infer(x=batches[i % len(batches)])[output]
        seconds.append(time.perf_counter() - started)
        if i < len(batches):
            outputs.append(result)
    return np.concatenate(outputs), seconds
