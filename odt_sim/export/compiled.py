"""The settings that a model was compiled with: loss, metrics and optimizer."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras

from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export.interface import Interface, per_output


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
