"""The metrics of a written file on examples, and the time of its calls."""

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, SignatureRunner
from numpy.typing import NDArray

from odt_sim.data.columns import Rows, arrays_of, rows_of
from odt_sim.device.batches import padded
from odt_sim.device.examples import Examples
from odt_sim.device.inference import losses_of
from odt_sim.device.native_output import quiet
from odt_sim.device.runtime import Runtime, inputs_of
from odt_sim.errors import ModelError, one_line
from odt_sim.metrics.device import model_figures
from odt_sim.metrics.masks import masks_of
from odt_sim.metrics.own import OwnMetric, own_figures
from odt_sim.model.names import parts
from odt_sim.model.trainable import TrainableModel

CALLS = 10
"""The smallest number of calls that are timed, after a first one."""


def measured(
    content: bytes, model: TrainableModel, examples: Examples, where: str, own: Sequence[OwnMetric] = ()
) -> dict[str, Any]:
    """Run a file's `infer` on examples.

    Args:
        content: The file.
        model: The model of which the file was made.
        examples: At least one example.
        where: The file's name, for errors.
        own: User-defined metrics.

    Returns:
        `bytes`, the file's size; `examples`, `loss`, the metrics of the task and of the user; `milliseconds`, the
        median time of one call with one thread on this machine; `rows`, the rows of one call.

    Raises:
        ModelError: LiteRT cannot run the file.
        SimulationError: A user-defined metric failed.
    """
    x, y = examples.take()
    declared = next(iter(model.signatures["infer"].inputs.values())).shape[0]
    rows = declared if declared > 0 else model.batch_size
    batches = [inputs_of(model, "infer", padded(x[start : start + rows], rows)) for start in range(0, len(x), rows)]
    try:
        with quiet():
            infer = Interpreter(model_content=content, num_threads=1).get_signature_runner("infer")
            returned, seconds = _run(infer, batches)
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"{where}: LiteRT cannot run it ({one_line(error)}); leave its format out") from error
    found = _figures(model, x, y, {name: array[: len(x)] for name, array in returned.items()}, own)
    return {"bytes": len(content), **found, "milliseconds": 1000 * median(seconds), "rows": rows}


def _figures(
    model: TrainableModel, x: Rows, y: Rows, returned: Mapping[str, NDArray[Any]], own: Sequence[OwnMetric]
) -> dict[str, float]:
    """Return the metrics of the outputs of `infer`; the model's signature `loss`, if any, computes the losses."""
    outputs = rows_of({name: returned[own] for name, own in model.main_outputs("infer").items()})
    masks = parts(returned, "mask")
    losses = losses_of(Runtime(model), x, y, outputs, masks) if model.returns_losses else {}
    answers, targets = arrays_of(outputs), arrays_of(y)
    counts = masks_of(model, targets, masks)
    return {
        **model_figures(model, answers, targets, losses, counts),
        **own_figures(own, answers, targets, counts),
    }


def _run(infer: SignatureRunner, batches: list[dict[str, NDArray[Any]]]) -> tuple[dict[str, NDArray[Any]], list[float]]:
    """Return the outputs of all batches by name, and the seconds of each call."""
    infer(**batches[0])  # the first call allocates
    outputs, seconds = [], []
    for i in range(max(len(batches), CALLS)):
        started = time.perf_counter()
        result = infer(**batches[i % len(batches)])
        seconds.append(time.perf_counter() - started)
        if i < len(batches):
            outputs.append(result)
    return {name: np.concatenate([each[name] for each in outputs]) for name in outputs[0]}, seconds
