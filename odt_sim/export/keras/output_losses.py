"""The losses, metrics and optimizer of a training step, from the caller's settings or those of `compile`."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.errors import ExportError, ExportWarning, ModelError
from odt_sim.export.keras.interface import Interface, identifier, interface_of, per_output
from odt_sim.export.keras.losses import CLASSIFIERS, PROBABILITIES, objective_of, unknown_objective
from odt_sim.export.keras.objective import Objective
from odt_sim.export.lowering import Trace
from odt_sim.metrics.tasks import is_computed, output_metrics, task_of_output
from odt_sim.model.contract.manifest import CTC, TASKS, Output
from odt_sim.model.contract.names import full, is_one_of


@dataclass(frozen=True)
class Compiled:
    """How a model is trained, as given to the export or to `compile`.

    Attributes:
        loss: The loss of each output, as given by the caller; None if the model's class computes it.
        loss_weights: The factor of each output's loss; None for 1.
        optimizer: The optimizer, as given by the caller.
        metrics: The names of the metrics of each output.
        by_keras: Whether the loss comes from `compile`: a cross-entropy given by name then expects probabilities.
    """

    loss: Any
    loss_weights: Any
    optimizer: Any
    metrics: Any = None
    by_keras: bool = False


def settings_of_model(model: keras.Model, loss: Any, loss_weights: Any, optimizer: Any) -> Compiled:
    """Return the given loss and optimizer, with the settings of `compile` as defaults.

    Raises:
        ExportError: Neither the caller nor `compile` gives an optimizer.
    """
    config = getattr(model, "_compile_config", None)
    own = dict(config.config) if model.compiled and config is not None else {}
    compiled_optimizer = getattr(model, "optimizer", None)
    if optimizer is None and compiled_optimizer is None:
        raise ExportError(
            f"model {model.name!r}: expected an optimizer, or a compiled model; pass optimizer=..., or call "
            "model.compile; in a configuration, model.build.compiled=true loads the compile settings of a file"
        )
    by_keras = loss is None
    return Compiled(
        loss=own.get("loss") if by_keras else loss,
        loss_weights=own.get("loss_weights") if by_keras and loss_weights is None else loss_weights,
        optimizer=compiled_optimizer if optimizer is None else optimizer,
        metrics=[own.get("metrics"), own.get("weighted_metrics")],
        by_keras=by_keras,
    )


def metric_names(compiled: Compiled, interface: Interface) -> list[tuple[str, ...]]:
    """Return the names of the metrics of each output, without duplicates and those with settings of their own.

    Evaluation computes metrics over all classes, with their default threshold; an `IoU` of some classes would otherwise
    get the value of another metric. A warning names the metrics that are left out.
    """
    names: list[list[str]] = [[] for _ in interface.output_names]
    for given in compiled.metrics or ():
        for own, metrics in zip(names, _by_output(given, interface), strict=True):
            own += [name for name in map(_name, filter(_is_default, _listed(metrics))) if name not in own]
    return [tuple(own) for own in names]


def _is_default(metric: Any) -> bool:
    """Return whether a metric counts all classes with the default threshold; warn if not."""
    if not isinstance(metric, keras.metrics.Metric):
        return True
    chosen, classes = getattr(metric, "target_class_ids", None), getattr(metric, "num_classes", 0)
    some = (chosen is not None and len({*chosen}) < classes) or getattr(metric, "class_id", None) is not None
    thresholds = [getattr(metric, name, None) for name in ("threshold", "init_thresholds")]
    if some or any(value not in (None, 0.5) for value in thresholds):
        setting = "some classes" if some else "another threshold than 0.5"
        warnings.warn(
            f"metric {metric.name!r} of compile: is for {setting}, which evaluation does not compute, so it is left out; "
            "write it as a function, metrics=[your.function]: see docs/how-to/own-metric.md",
            ExportWarning,
            stacklevel=6,
        )
        return False
    return True


def _by_output(given: Any, interface: Interface) -> list[Any]:
    count = len(interface.output_names)
    if given is None or count == 1:
        return [list(given.values()) if isinstance(given, Mapping) else given] * count
    if isinstance(given, Mapping):
        return per_output("metrics", {**dict.fromkeys(interface.output_names), **given}, interface.output_names)
    return list(given) if len(given) == count else [given] * count


def _listed(metrics: Any) -> list[Any]:
    if metrics is None:
        return []
    return [one for each in metrics for one in _listed(each)] if isinstance(metrics, list | tuple) else [metrics]


def _name(metric: Any) -> str:
    """Return the name of a metric that is given as a name, a function or an object."""
    if isinstance(metric, str):
        return metric
    if (k := getattr(metric, "k", None)) is not None:  # TopKCategoricalAccuracy or SparseTopKCategoricalAccuracy
        return f"top_{k}"
    return str(getattr(metric, "__name__", None) or metric.name)


PRODUCTS = {"MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"}


def endings_of(infer: Trace) -> list[list[str]]:
    """Return, for each output of a traced model, the types of the ops back to its last products with weights."""
    outputs = infer.concrete.structured_outputs
    return [_ending(output) for name, output in outputs.items() if not is_one_of(name, ("mask",))]


def _ending(output: tf.Tensor) -> list[str]:
    pending, seen, types = [output.op], set(), []
    while pending:
        op = pending.pop(0)
        if op.name not in seen and op.type not in PRODUCTS:
            seen.add(op.name)
            types += [] if _only_moves(op) else [str(op.type)]
            pending += [t.op for t in op.inputs]
    return types


def _only_moves(op: tf.Operation) -> bool:
    """Return whether an op keeps values and their last axis, as the ops around a TimeDistributed head do."""
    rank = op.outputs[0].shape.rank if op.outputs else None
    if op.type == "Transpose":
        order = tf.get_static_value(op.inputs[1])
        return order is not None and order[-1] == len(order) - 1
    if op.type == "Pack":
        return rank is not None and op.get_attr("axis") % rank != rank - 1
    return op.type in ("Const", "Identity", "Reshape", "Squeeze", "ExpandDims")


READS = {"ReadVariableOp", "Placeholder"}
"""Ops among the last ops of a model that read weights."""


def objectives_of(
    compiled: Compiled,
    interface: Interface,
    endings: Sequence[Sequence[str]],
    batch_size: int | None,
    targets: Sequence[tf.TensorSpec] | None = None,
    *,
    own: bool = False,
    evaluated: bool = True,
    alone: bool = False,
) -> tuple[Objective, ...]:
    """Return the objective of each output.

    Args:
        compiled: The losses and their factors: one for all outputs (see `losses.objective_of`), a list, or a mapping by the
            name of the output.
        interface: The model's inputs and outputs.
        endings: The types of the last ops before each output, the last one first.
        batch_size: The rows of a batch; None for any number.
        targets: The targets of an example, if given.
        own: Whether the model's class or its layers compute the loss, so that no loss is needed.
        evaluated: Whether that loss can be computed outside training steps, from `compute_loss`.
        alone: Whether an example of x alone is given, as for `fit(x)`.
    """
    names = interface.output_names
    if targets is not None and len(targets) != len(names):
        raise ExportError(f"example: expected targets for {len(names)} outputs, found {len(targets)}")
    losses = _losses(compiled.loss, names, own=own and evaluated)
    weights = per_output("loss_weights", 1.0 if compiled.loss_weights is None else compiled.loss_weights, names)
    metrics = metric_names(compiled, interface)
    ends = [None] * len(names) if compiled.by_keras else endings
    shapes, examples = interface.output_shapes(batch_size), targets or [None] * len(names)
    objectives = []
    for i, name in enumerate(names):
        if losses[i] is None and own:
            y = full("y", name)
            objective = unknown_objective(examples[i], shapes[i], y, alone=alone, evaluated=evaluated)
        else:
            objective = objective_of(losses[i], ends[i], shapes[i], name=full("y", name), example=examples[i])
        _warn_of_logits(objective, endings[i])
        objectives.append(replace(objective, weight=_weight(weights[i]), metrics=metrics[i]))
    return tuple(objectives)


def _warn_of_logits(objective: Objective, ending: Sequence[str]) -> None:
    """Warn of a loss of probabilities if the model ends in a layer with a bias without a softmax or sigmoid after it.

    Also warn of the loss `ctc`, which expects logits, after a softmax.
    """
    if objective.name == CTC and ending[:1] == ["Softmax"]:
        warnings.warn(
            "loss ctc: takes logits, but the model ends in a softmax, so it hardly trains; leave the softmax out",
            ExportWarning,
            stacklevel=5,
        )
    if objective.name not in PROBABILITIES or objective.from_logits:
        return
    if {"BiasAdd"} <= set(ending) - READS <= {"BiasAdd", "Relu"}:
        warnings.warn(
            f"loss {objective.name}: takes probabilities, since from_logits is False, but the model ends without "
            f"{PROBABILITIES[objective.name].lower()}, so it hardly trains; set from_logits=True in the loss, or "
            "pass the loss by name to export_model, which then detects it from the model",
            ExportWarning,
            stacklevel=5,
        )


def _losses(given: Any, names: Sequence[str], *, own: bool) -> list[Any]:
    """Return the loss of each output; unlike Keras, require one for every output unless the model's class computes it."""
    if isinstance(given, Mapping) and "name" not in given and {identifier(name) for name in given} < set(names):
        given = {**dict.fromkeys(names), **{identifier(name): loss for name, loss in given.items()}}
    losses = per_output("loss", given, names)
    missing = [name for name, loss in zip(names, losses, strict=True) if loss is None]
    if missing and not own and len(missing) < len(names):
        raise ExportError(
            f"loss: expected one for each output, found none for {missing[0]!r}; give it one (with a factor of 0 in "
            "loss_weights if it should not train), or export a keras.Model without this output"
        )
    return losses


def _weight(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not math.isfinite(given):
        raise ExportError(f"loss_weights: expected numbers, found {given!r}")
    return float(given)


def masked(objectives: Sequence[Objective], interface: Interface, infer: Trace) -> tuple[Objective, ...]:
    """Return the objectives, with `masked` set for the outputs for which the traced `infer` returns a mask."""
    returned = infer.concrete.structured_outputs
    own = zip(objectives, interface.output_names, strict=True)
    return tuple(replace(objective, masked=full("mask", name) in returned) for objective, name in own)


def outputs_of(
    objectives: Sequence[Objective], interface: Interface, task: Any = None, metrics: Any = ()
) -> tuple[Output, ...]:
    """Describe each output for the manifest.

    Args:
        objectives: The loss of each output, with the metrics of `compile`; metrics that odt_sim cannot compute are dropped.
        interface: The model's inputs and outputs.
        task: The task of the outputs, one of `manifest.TASKS`, or a mapping by the output's name; None to derive it.
        metrics: The names of additional metrics for every output, or a mapping by the output's name.
    """
    names, shapes = interface.output_names, interface.output_shapes(None)
    tasks, named = per_output("task", task, names), _metrics_of_outputs(metrics, names)
    outputs = []
    for i, own in enumerate(objectives):
        if tasks[i] not in (None, *TASKS):
            raise ExportError(f"task: expected {', '.join(TASKS)} or none, found {tasks[i]!r}")
        output = Output(names[i], own.name, own.from_logits, own.delta, own.weight, mask=own.masked)
        output = replace(output, task=tasks[i] or own.task, ignore_class=own.ignore_class)
        kind, shape = task_of_output(output, shapes[i]), shapes[i]
        try:
            output_metrics(kind, shape, named[i])
        except ModelError as error:
            raise ExportError(str(error)) from error
        computed = [metric for metric in own.metrics if is_computed(metric, kind)]
        outputs.append(replace(output, metrics=tuple(dict.fromkeys([*computed, *named[i]]))))
    return tuple(outputs)


def _metrics_of_outputs(metrics: Any, names: Sequence[str]) -> list[Sequence[str]]:
    """Return the named metrics of each output; a mapping may omit outputs without metrics."""
    if isinstance(metrics, Mapping):
        metrics = per_output("metrics", {**dict.fromkeys(names, ()), **metrics}, names)
        return [list(own) for own in metrics]
    return [[metrics] if isinstance(metrics, str) else list(metrics or ())] * len(names)


def compiled_outputs(model: keras.Model, names: Sequence[str]) -> tuple[Output, ...]:
    """Describe outputs by the losses of a compiled Keras model; outputs whose loss evaluation lacks get none.

    A loss given by name expects probabilities, as in Keras.

    Args:
        model: The model.
        names: The names of several outputs in signatures, or `("",)`.
    """
    try:
        if len(names) == 1:
            own = objective_of(model.loss, None, tf.TensorShape(model.output_shape))
            described = Output("", own.name, own.from_logits, own.delta, task=own.task)
            return (described if own.on_host else Output(),)
        interface, compiled = interface_of(model), settings_of_model(model, None, None, None)
        objectives = objectives_of(compiled, interface, [()] * len(interface.output_names), None)
    except (ExportError, AttributeError, ValueError):
        return tuple(map(Output, names))
    known = [objective if objective.on_host else replace(objective, name=None) for objective in objectives]
    by_name = {output.name: output for output in outputs_of(known, interface)}
    return tuple(by_name.get(name, Output(name)) for name in names)


def class_weight_of(
    given: Mapping[int, float] | None, objectives: Sequence[Objective], interface: Interface
) -> NDArray[np.float32] | None:
    """Return the factor of each class, `[classes]`; None if no factors are given.

    Args:
        given: The factors by class; missing classes get 1.
        objectives: The loss of each output.
        interface: The model's outputs: `[batch, ..., classes]`, or `[batch, ..., 1]` for a binary loss.
    """
    if given is None:
        return None
    if len(objectives) > 1:
        raise ExportError(f"class_weight: expected a model with one output, found {len(objectives)}; leave it out")
    objective, output = objectives[0], interface.output_shapes(None)[0]
    classes = 2 if output[-1] == 1 else int(output[-1] or 0)
    binary = (objective.name or "").startswith("binary_")
    if objective.name not in (*CLASSIFIERS, None) or (binary and output[-1] != 1):
        raise ExportError(
            f"class_weight: the loss {objective.name} of {output[-1]} outputs has no classes; leave it out"
        )
    weights = np.ones(classes, np.float32)
    for key, value in given.items():
        if not (isinstance(key, int | np.integer) and 0 <= key < classes and math.isfinite(value) and value >= 0):
            raise ExportError(
                f"class_weight: expected classes 0..{classes - 1} and factors of at least 0, found {key!r}: {value!r}"
            )
        weights[key] = value
    return weights
