"""The losses of all outputs of a training step, as the caller gives them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from odt_sim.errors import ExportError
from odt_sim.export.interface import Interface, identifier
from odt_sim.export.losses import CLASSIFIERS, Objective, objective_of
from odt_sim.export.lowering import Trace
from odt_sim.model.manifest import Output
from odt_sim.model.names import full


def objectives_of(
    loss: Any,
    interface: Interface,
    endings: Sequence[Sequence[str]],
    batch_size: int | None,
    loss_weights: Any = None,
) -> tuple[Objective, ...]:
    """Return the objective of each output.

    Args:
        loss: The loss of the only output or of every output (see `losses.objective_of`), a list, or a mapping by the name of
            the output.
        interface: The model's inputs and outputs.
        endings: The types of the ops that end each output, the last one first.
        batch_size: The rows of a batch; None for any number.
        loss_weights: A factor of each output's loss in the sum: a list or a mapping; None for 1.
    """
    names = interface.output_names
    losses = _per_output("loss", loss, names)
    weights = _per_output("loss_weights", 1.0 if loss_weights is None else loss_weights, names)
    return tuple(
        replace(objective_of(own, ending, shape, name=full("y", name)), weight=_weight(weight))
        for own, ending, shape, name, weight in zip(
            losses, endings, interface.output_shapes(batch_size), names, weights, strict=True
        )
    )


def _per_output(setting: str, given: Any, names: Sequence[str]) -> list[Any]:
    """Return a setting for each output: the same, or from a list or a mapping by name."""
    if isinstance(given, list | tuple):
        if len(given) != len(names):
            raise ExportError(f"{setting}: expected one for each of {len(names)} outputs, found {len(given)}")
        return list(given)
    if not isinstance(given, Mapping) or names == ("",) or "name" in given:
        return [given] * len(names)
    by_name = {identifier(key): value for key, value in given.items()}
    if set(by_name) != set(names):
        raise ExportError(f"{setting}: expected the outputs {', '.join(names)}, found {', '.join(map(str, given))}")
    return [by_name[name] for name in names]


def _weight(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not math.isfinite(given):
        raise ExportError(f"loss_weights: expected numbers, found {given!r}")
    return float(given)


def masked(objectives: Sequence[Objective], interface: Interface, infer: Trace) -> tuple[Objective, ...]:
    """Return the objectives with the outputs marked for which a traced `infer` returns a mask."""
    returned = infer.concrete.structured_outputs
    own = zip(objectives, interface.output_names, strict=True)
    return tuple(replace(objective, masked=full("mask", name) in returned) for objective, name in own)


def outputs_of(objectives: Sequence[Objective], interface: Interface) -> tuple[Output, ...]:
    """Describe each output for the manifest."""
    return tuple(
        Output(
            name=name,
            loss=own.name,
            from_logits=own.from_logits,
            delta=own.delta,
            loss_weight=own.weight,
            task=own.task(output),
            mask=own.masked,
        )
        for own, output, name in zip(objectives, interface.output_shapes(None), interface.output_names, strict=True)
    )


def compiled_objective(model: keras.Model) -> Objective | None:
    """Return the objective of a compiled Keras model; None if evaluation lacks its loss.

    A loss by name takes probabilities, as in Keras.
    """
    try:
        objective = objective_of(model.loss, None, tf.TensorShape(model.output_shape))
    except (ExportError, AttributeError, ValueError):
        return None
    return objective if objective.on_host else None


def class_weight_of(
    given: Mapping[int, float] | None, objectives: Sequence[Objective], interface: Interface
) -> NDArray[np.float32] | None:
    """Return the factor of each class, `[classes]`; None if none is given.

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
