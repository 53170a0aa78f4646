"""The metrics of a written file on examples, and the time of its calls."""

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, SignatureRunner
from numpy.typing import NDArray

from odt_sim._support.text import one_line
from odt_sim.data.store.columns import arrays_of, rows_of
from odt_sim.device.batches import padded
from odt_sim.device.engines import quiet
from odt_sim.device.examples import Examples
from odt_sim.device.runtime import Runtime, inputs_of
from odt_sim.device.scoring import losses_of
from odt_sim.errors import ModelError
from odt_sim.metrics.device import masks_of, model_figures
from odt_sim.metrics.own import OwnMetric, own_figures
from odt_sim.model.contract.names import parts
from odt_sim.model.trainable import TrainableModel

CALLS = 10
"""The smallest number of calls that are timed, after a first one."""


def measured(
    content: bytes,
    model: TrainableModel,
    examples: Examples,
    where: str,
    own: Sequence[OwnMetric] = (),
    train: Examples | None = None,
) -> dict[str, Any]:
    """Run a file's `infer` on examples.

    Args:
        content: The file.
        model: The model of which the file was made.
        examples: At least one example.
        where: The file's name, for errors.
        own: User-defined metrics.
        train: The training examples, for user-defined metrics that use them.

    Returns:
        `bytes`, the file's size; `examples`, `loss`, the metrics of the task and of the user; `milliseconds`, the
        median time of one call with one thread on this machine; `rows`, the rows of one call.

    Raises:
        ModelError: LiteRT cannot run the file.
        SimulationError: A user-defined metric failed.
    """
    try:
        with quiet():
            infer = Interpreter(model_content=content, num_threads=1).get_signature_runner("infer")
            found, seconds = _answers(infer, model, examples)
            trained = _answers(infer, model, train)[0] if train and any(metric.uses_train for metric in own) else None
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"{where}: LiteRT cannot run it ({one_line(error)}); leave its format out") from error
    figures = {
        **model_figures(model, **found),
        **own_figures(own, found["answers"], found["y"], found["masks"], train=lambda: trained),
    }
    rows = _rows_of(model)
    return {"bytes": len(content), **figures, "milliseconds": 1000 * median(seconds), "rows": rows}


def _rows_of(model: TrainableModel) -> int:
    """Return the rows of one call of `infer`."""
    declared = next(iter(model.signatures["infer"].inputs.values())).shape[0]
    return declared if declared > 0 else model.batch_size


def _answers(
    infer: SignatureRunner, model: TrainableModel, examples: Examples
) -> tuple[dict[str, Any], Sequence[float]]:
    """Return the outputs, targets, losses and masks of examples, as `model_figures` takes them, and each call's seconds.

    The model's signature `loss`, if any, computes the losses.
    """
    (x, y), rows = examples.take(), _rows_of(model)
    batches = [inputs_of(model, "infer", padded(x[start : start + rows], rows)) for start in range(0, len(x), rows)]
    padded_outputs, seconds = _run(infer, batches)
    returned = {name: array[: len(x)] for name, array in padded_outputs.items()}
    outputs = rows_of({name: returned[own] for name, own in model.main_outputs("infer").items()})
    masks, targets = parts(returned, "mask"), arrays_of(y)
    losses = losses_of(Runtime(model), x, y, outputs, masks) if model.returns_losses else {}
    counts = masks_of(model, targets, masks)
    return {"answers": arrays_of(outputs), "y": targets, "losses": losses, "masks": counts}, seconds


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
