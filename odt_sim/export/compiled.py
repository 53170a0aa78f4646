"""What a model was compiled with: loss, metrics and optimizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras

from odt_sim.errors import ExportError
from odt_sim.export.interface import Interface, per_output


@dataclass(frozen=True)
class Compiled:
    """How a model is trained, as given to the export or to `compile`.

    Attributes:
        loss: The loss of each output, as the caller gives it; None if the model's class computes it.
        loss_weights: The factor of each output's loss; None for 1.
        optimizer: The optimizer, as the caller gives it.
        metrics: The names of the metrics of each output.
        by_keras: Whether the loss is that of `compile`: a cross-entropy by name then takes probabilities.
    """

    loss: Any
    loss_weights: Any
    optimizer: Any
    metrics: Any = None
    by_keras: bool = False


def settings_of_model(model: keras.Model, loss: Any, loss_weights: Any, optimizer: Any) -> Compiled:
    """Return the loss and the optimizer that are given, completed by those of `compile`.

    Raises:
        ExportError: Neither the caller nor `compile` gives an optimizer.
    """
    config = getattr(model, "_compile_config", None)
    own = dict(config.config) if model.compiled and config is not None else {}
    compiled_optimizer = getattr(model, "optimizer", None)
    if optimizer is None and compiled_optimizer is None:
        raise ExportError(
            f"model {model.name!r}: expected an optimizer, or a compiled model; give optimizer=..., or call model.compile; "
            "of a file, a configuration loads what it was compiled with by model.build.compiled=true"
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
    """Return the names of the metrics of each output, without repetitions."""
    names: list[list[str]] = [[] for _ in interface.output_names]
    for given in compiled.metrics or ():
        for own, metrics in zip(names, _by_output(given, interface), strict=True):
            own += [name for name in map(_name, _listed(metrics)) if name not in own]
    return [tuple(own) for own in names]


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
    """Return the name of a metric: a name as it is given, a function's, or an object's."""
    if isinstance(metric, str):
        return metric
    if (k := getattr(metric, "k", None)) is not None:  # of TopKCategoricalAccuracy and the sparse one
        return f"top_{k}"
    return str(getattr(metric, "__name__", None) or metric.name)
