"""Description of a model for phones: the order of inputs and targets, and the metrics of outputs."""

from collections.abc import Mapping
from typing import Any

from odt_sim.metrics.names import is_percent, title_of
from odt_sim.metrics.tasks import model_metrics, output_metrics, task_of_output
from odt_sim.model.flatbuffer import TensorInfo
from odt_sim.model.manifest import NO_LOSS, Output
from odt_sim.model.names import full
from odt_sim.model.trainable import TrainableModel


def described(model: TrainableModel) -> Mapping[str, Any]:
    """Return a model's inputs, targets and outputs by their names in signatures, and the properties that metrics need.

    `train_inputs` contains the default numbers of the further inputs of training steps, by name.
    """
    return {
        "inputs": [{"name": full("x", name), "vocabulary": model.vocabularies.get(name)} for name in model.inputs],
        "targets": [full("y", name) for name in model.targets],
        "outputs": [
            {**of_output(output, model.answers[output.name]), "classes": model.classes_by_target.get(output.name)}
            for output in model.outputs
        ],
        "train_inputs": {name: own.default for name, own in model.train_inputs.items()},
    }


def of_output(output: Output, answer: TensorInfo) -> Mapping[str, Any]:
    """Return the properties of an output that its metrics need.

    Args:
        output: The manifest's description.
        answer: The tensor `[batch, ...]` that `infer` returns.
    """
    task = task_of_output(output, answer.shape)
    return {
        "name": output.name,
        "answer": answer.name,
        "target": full("y", output.name),
        "mask": full("mask", output.name) if output.mask else None,
        "loss": output.loss,
        "loss_weight": output.loss_weight,
        "from_logits": output.from_logits,
        "delta": output.delta,
        "task": task,
        "metrics": output_metrics(task, answer.shape, output.metrics),
        "width": answer.shape[-1],
        "ignore_class": output.ignore_class,
    }


def scores(model: TrainableModel) -> list[str]:
    """Return the first metric of each output, shown to a phone's user after training; none if the loss is unknown."""
    if model.loss is None and not model.returns_losses:
        return []
    outputs = [(output, model.answers[output.name].shape) for output in model.outputs]
    first = [full(output_metrics(task_of_output(output, shape), shape)[0], output.name) for output, shape in outputs]
    known = model_metrics(model)
    if any(output.loss == NO_LOSS for output in model.outputs):
        return [metric for metric in first if not metric.startswith("loss")]
    return [metric for metric in first if metric in known] or ["loss"]


def shown(metric: str) -> Mapping[str, Any]:
    """Return the name of a metric, its title, and whether it is shown in percent."""
    return {"name": metric, "title": title_of(metric), "percent": is_percent(metric)}
