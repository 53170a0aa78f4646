"""Tasks of a model's outputs, and their metrics."""

from collections.abc import Mapping, Sequence

from odt_sim.errors import ModelError
from odt_sim.metrics.answers import Classes, Labels, Ranked, Values
from odt_sim.metrics.names import canonical, parted
from odt_sim.metrics.scores import Transcripts
from odt_sim.model.contract.manifest import Output
from odt_sim.model.trainable import TrainableModel

MOST_TARGETS = 10  # maximum number of regression targets with separate errors

Answers = Values | Classes | Transcripts

TASK_METRICS: Mapping[str, tuple[str, ...]] = {
    "classification": ("accuracy", "loss", "balanced_accuracy", "auc"),
    "segmentation": ("iou", "loss", "accuracy", "balanced_accuracy"),
    "multi_label": ("micro_f1", "loss", "macro_f1", "exact_match", "accuracy", "auc"),
    "regression": ("mse", "mae", "loss", "r2"),
    "ranking": ("ndcg_at_10", "loss", "hit_rate_at_10", "auc"),
    "transcription": ("token_error_rate", "loss", "exact_match"),
    "other": ("loss",),
}
"""Metrics by task; the first is used to compare strategies."""

ANSWERS: Mapping[str, type[Answers]] = {
    "classification": Classes,
    "segmentation": Classes,
    "multi_label": Labels,
    "regression": Values,
    "ranking": Ranked,
    "transcription": Transcripts,
    "other": Values,
}


def task_of_output(output: Output, shape: Sequence[int]) -> str:
    """Return the task of an output, a key of `TASK_METRICS`.

    Args:
        output: The manifest's description.
        shape: The output's shape with the batch as first axis.

    Returns:
        The manifest's task. But a classification or segmentation with a binary loss and several outputs is
        `multi_label`, and a classification of pixels is `segmentation`.
    """
    if output.task not in ("classification", "segmentation"):
        return output.task
    if str(output.loss).startswith("binary_") and shape[-1] > 1:
        return "multi_label"
    return "segmentation" if len(shape) > 3 else output.task


def output_metrics(task: str, shape: Sequence[int], named: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the metrics of one output.

    Args:
        task: A key of `TASK_METRICS`.
        shape: The output's shape with the batch as first axis.
        named: The names of additional metrics, from odt_sim or Keras.

    Returns:
        The task's metrics; `perplexity` for a class per position; `mae_0`, `mae_1`, ... for 2 to 10 targets; the named
        metrics.

    Raises:
        ModelError: A name is unknown, or its metric is not defined for the task.
    """
    metrics = [*TASK_METRICS[task]]
    if task == "classification" and len(shape) == 3 and shape[-1] > 1:
        metrics.append("perplexity")
    if task == "regression" and len(shape) == 2 and 1 < shape[-1] <= MOST_TARGETS:
        metrics += [f"mae_{target}" for target in range(shape[-1])]
    for name in map(canonical, named):
        if not is_computed(name, task):
            if task == "other":
                raise ModelError(
                    f"metric {name!r}: is not defined for this loss; leave it out, or run with metrics=[your.function]"
                )
            raise ModelError(f"metric {name!r}: is not defined for {task.replace('_', ' ')}; leave it out")
        metrics.append(name)
    return tuple(dict.fromkeys(metrics))


def is_computed(name: str, task: str) -> bool:
    """Return whether a metric, by our name or Keras', is known and defined for a task."""
    try:
        metric = canonical(name)
    except ModelError:
        return False
    method = parted(metric)[0]
    one_class = method in ("top", "perplexity") and task in ("multi_label", "ranking")
    return metric == "loss" or (task != "other" and not one_class and hasattr(ANSWERS[task], method))


def model_metrics(model: TrainableModel) -> tuple[str, ...]:
    """Return the metrics of a model; the first is used to compare strategies.

    With several outputs, the first is `loss`, the weighted sum, and the others are named after their output:
    `accuracy_digit`.

    Raises:
        ModelError: The manifest names a metric that is unknown or not defined.
    """
    shapes = {name: answer.shape for name, answer in model.answers.items()}
    each = {o.name: output_metrics(task_of_output(o, shapes[o.name]), shapes[o.name], o.metrics) for o in model.outputs}
    if len(each) == 1:
        return next(iter(each.values()))
    joint = model.returns_losses and [*model.signatures["loss"].outputs] == ["losses"]
    left = {"loss"} if joint else set[str]()  # the loss is not a sum over outputs
    return ("loss", *(f"{metric}_{name}" for name, metrics in each.items() for metric in metrics if metric not in left))


def model_task(model: TrainableModel) -> str:
    """Return the task of a model; the tasks of several outputs are joined by `+`."""
    tasks = [task_of_output(output, model.answers[output.name].shape) for output in model.outputs]
    return "+".join(dict.fromkeys(tasks))
