"""Metrics of one device, computed from the outputs of its model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.metrics.answers import Classes
from odt_sim.metrics.losses import example_losses
from odt_sim.metrics.names import parted
from odt_sim.metrics.tasks import ANSWERS, Answers, output_metrics, task_of_output
from odt_sim.model.contract.manifest import NO_LOSS, Output
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Array

Arrays = Mapping[str, Array]


def mean_loss(
    output: Output, outputs: Array, y: Array, *, losses: Array | None = None, mask: Array | None = None
) -> float:
    """Return the mean loss of examples, or of the positions that count; see `output_figures`.

    Raises:
        ModelError: The loss is unknown.
    """
    if losses is None:
        losses = example_losses(outputs, y, output.loss, output.from_logits, output.delta, mask)
    if mask is None:
        return float(losses.mean())
    counts = np.count_nonzero(mask.reshape(len(mask), -1), axis=1)
    return float((losses * counts).sum() / max(counts.sum(), 1))


def output_figures(
    output: Output, outputs: Array, y: Array, *, losses: Array | None = None, mask: Array | None = None
) -> dict[str, float]:
    """Return the metrics of one device and one output.

    Args:
        output: The loss, the task and the named metrics.
        outputs: `[examples, ...]` float32, as `infer` returns them; at least one example.
        y: The labels or targets.
        losses: `[examples]`, the mean loss of each example over the positions that count; None to compute it by the
            host's formula.
        mask: `[examples, ...]`, 1 where a position counts; None if all do.

    Returns:
        `examples`, and the metrics that `odt_sim.metrics.tasks.output_metrics` names. Undefined metrics are absent,
        such as `auc` with only one class, `r2` of equal targets, or a loss that only training steps compute; if no
        position counts, only `examples` is present.

    Raises:
        ModelError: The loss is unknown, or a metric.
    """
    known = (mask is None or mask.any()) and (losses is not None or output.loss != NO_LOSS)
    mean = mean_loss(output, outputs, y, losses=losses, mask=mask) if known else None
    task = task_of_output(output, outputs.shape)
    answers = _answers(task, outputs, y, output.from_logits, mask)
    found: dict[str, float] = {}
    for metric in output_metrics(task, outputs.shape, output.metrics):
        if metric == "loss":
            found |= {"examples": len(y)} if mean is None else {"loss": mean, "examples": len(y)}
        elif answers is not None and (value := _value(answers, metric)) is not None:
            found[metric] = value
    return found


def model_figures(model: TrainableModel, answers: Arrays, y: Arrays, losses: Arrays, masks: Arrays) -> dict[str, float]:
    """Return the metrics of one device for all outputs of its model.

    Args:
        model: The model.
        answers: The outputs of `infer`, `[examples, ...]`, by name; a single output has the empty name.
        y: The targets by name.
        losses: `[examples]` by name, as returned by the signature `loss`; missing losses are computed by the host's
            formulas. With several outputs, `""` alone is a joint loss that is not a sum over outputs.
        masks: `[examples, ...]` by name, 1 where a position counts, as `odt_sim.metrics.device.masks_of` returns them.

    Returns:
        The metrics of `output_figures`. With several outputs, `loss` is the weighted sum of the losses of the outputs
        with a position that counts, and other metrics have the output's name as suffix: `accuracy_digit`.

    Raises:
        ModelError: A loss is unknown, or a metric.
    """
    joint = _joint(model, losses)
    each = {
        output.name: output_figures(
            output,
            answers[output.name],
            y[output.name],
            losses=losses.get(output.name) if joint is None else joint,
            mask=masks.get(output.name),
        )
        for output in model.outputs
    }
    if len(each) == 1:
        return next(iter(each.values()))
    if joint is None:
        known = [
            output.loss_weight * each[output.name]["loss"] for output in model.outputs if "loss" in each[output.name]
        ]
        total = {"loss": sum(known)} if known else {}
    else:
        total = {"loss": float(joint.mean())}
    examples = {"examples": next(iter(each.values()))["examples"]}
    left = {"examples"} if joint is None else {"examples", "loss"}
    named = {f"{m}_{name}": value for name, found in each.items() for m, value in found.items() if m not in left}
    return {**total, **examples, **named}


def _joint(model: TrainableModel, losses: Arrays) -> Array | None:
    """Return the losses of examples that are not a sum over several outputs; None if each output has its own."""
    return losses[""] if len(model.outputs) > 1 and losses.keys() == {""} else None


def model_loss(model: TrainableModel, answers: Arrays, y: Arrays, losses: Arrays, masks: Arrays) -> float:
    """Return the mean loss of one device, the weighted sum over the outputs; see `model_figures`."""
    if (joint := _joint(model, losses)) is not None:
        return float(joint.mean())
    return sum(
        each.loss_weight
        * mean_loss(each, answers[each.name], y[each.name], losses=losses.get(each.name), mask=masks.get(each.name))
        for each in model.outputs
    )


def model_example_losses(model: TrainableModel, answers: Arrays, y: Arrays, losses: Arrays, masks: Arrays) -> Array:
    """Return the loss of each example of one device, `[examples]`, the weighted sum over the outputs; see `model_figures`."""
    if (joint := _joint(model, losses)) is not None:
        return joint
    total = np.zeros(len(next(iter(y.values()))))
    for output in model.outputs:
        name, own = output.name, losses.get(output.name)
        if own is None:
            own = example_losses(answers[name], y[name], output.loss, output.from_logits, output.delta, masks.get(name))
        total += output.loss_weight * own
    return total


def _answers(task: str, outputs: Array, y: Array, from_logits: bool, mask: Array | None) -> Answers | None:
    """Return the outputs and targets that count; None if none do, or the output has no task."""
    if task == "other":
        return None
    if mask is not None:
        counts = mask != 0
        outputs, y = outputs[counts], y.reshape(*counts.shape, *y.shape[counts.ndim :])[counts]
    if not len(outputs):
        return None
    if task in ("classification", "segmentation") and outputs.shape[-1] == 1:
        return Classes(outputs, y, from_logits, binary=True)
    return ANSWERS[task](outputs, y, from_logits)


def _value(answers: Answers, metric: str) -> float | None:
    method, number = parted(metric)
    value: float | None = getattr(answers, method)(*([] if number is None else [number]))
    return value


def masks_of(model: TrainableModel, y: Arrays, masks: Arrays) -> dict[str, NDArray[Any]]:
    """Return for each output a mask, 1 where a position counts, in the shape of its labels; absent if all count.

    Args:
        model: The model.
        y: The targets by name.
        masks: Masks `[examples, positions]` by name, as `infer` returns them.
    """
    found: dict[str, NDArray[Any]] = {name: mask.reshape(mask.shape[:2]) for name, mask in masks.items()}
    for name, ignored in model.ignored_classes.items():
        if ignored is not None:
            labels = y[name].reshape(len(y[name]), *model.targets[name].shape[1:])
            counts = labels != ignored
            own = found.get(name)
            found[name] = counts if own is None else counts & (own.reshape(*own.shape, *[1] * (counts.ndim - 2)) != 0)
    return found
