"""The figures of one device, from the outputs of its model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.answers import Classes, Values
from odt_sim.metrics.losses import example_losses as example_losses
from odt_sim.metrics.losses import log_softmax as log_softmax
from odt_sim.metrics.names import parted
from odt_sim.metrics.tasks import ANSWERS, output_metrics, task_of_output

Array = NDArray[Any]


def mean_loss(
    outputs: Array,
    y: Array,
    loss: str | None,
    from_logits: bool,
    delta: float = 1.0,
    *,
    losses: Array | None = None,
    mask: Array | None = None,
) -> float:
    """Return the mean loss of examples, or of their positions that count; see `figures`.

    Raises:
        ModelError: The loss is unknown.
    """
    if losses is None:
        losses = example_losses(outputs, y, loss, from_logits, delta, mask)
    if mask is None:
        return float(losses.mean())
    counts = np.count_nonzero(mask, axis=1)
    return float((losses * counts).sum() / max(counts.sum(), 1))


def figures(
    outputs: Array,
    y: Array,
    loss: str | None,
    from_logits: bool,
    delta: float = 1.0,
    *,
    task: str | None = None,
    metrics: Sequence[str] = (),
    losses: Array | None = None,
    mask: Array | None = None,
) -> dict[str, float]:
    """Return the figures of one device.

    Args:
        outputs: `[examples, ...]` float32, the outputs of `infer`; at least one example.
        y: The labels or targets.
        loss: The loss of the exported model.
        from_logits: Whether the outputs are logits rather than probabilities.
        delta: The error at which Huber's loss turns from quadratic to linear.
        task: The manifest's task; None to derive it from the loss.
        metrics: The names of additional metrics.
        losses: `[examples]`, the mean loss of each example, or of its positions that count; None to compute it from `loss`.
        mask: `[examples, positions]`, 1 where a position counts; None if all do.

    Returns:
        `examples`, and the metrics that `odt_sim.metrics.tasks.output_metrics` names. Undefined figures are absent, such as
        `auc` of one class, or `r2` of equal targets.

    Raises:
        ModelError: The loss is unknown, or a metric.
    """
    mean = mean_loss(outputs, y, loss, from_logits, delta, losses=losses, mask=mask)
    kind = task_of_output(task, loss, outputs.shape)
    answers = _answers(kind, outputs, y, from_logits, mask)
    found: dict[str, float] = {}
    for metric in output_metrics(kind, outputs.shape, metrics):
        if metric == "loss":
            found |= {"loss": mean, "examples": len(y)}
        elif answers is not None and (value := _value(answers, metric)) is not None:
            found[metric] = value
    return found


def _answers(kind: str, outputs: Array, y: Array, from_logits: bool, mask: Array | None) -> Values | Classes | None:
    """Return the answers that count; None if none does, or the outputs have no task."""
    if kind == "other":
        return None
    if mask is not None:
        counts = mask.reshape(mask.shape[:2]) != 0
        outputs, y = outputs[counts], y.reshape(*counts.shape, *y.shape[2:])[counts]
    if not len(outputs):
        return None
    if kind in ("classification", "segmentation") and outputs.shape[-1] == 1:
        return Classes(outputs, y, from_logits, binary=True)
    return ANSWERS[kind](outputs, y, from_logits)


def _value(answers: Values | Classes, metric: str) -> float | None:
    method, number = parted(metric)
    value: float | None = getattr(answers, method)(*([] if number is None else [number]))
    return value
