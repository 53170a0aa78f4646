"""Find models in which an example's output depends on the rest of its batch, for example through a mean over the batch."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from odt_sim.errors import ExportError
from odt_sim.export.lowering import Trace
from odt_sim.export.lowering.calls import LOOPS
from odt_sim.export.parameters import all_layers
from odt_sim.export.pytorch.module import Module

TRIALS = 3

LARGE = 10_000_000
"""Above this number of weights, a model runs on only one pair of batches: with 100 million, each call takes seconds."""


def check_rows_alone(model: keras.Model, infer: Trace, batch_size: int | None) -> None:
    """Check that the rows that pad a partial batch do not change the output of other rows.

    Only models with the user's code are run: custom layers, Lambda, functions of `keras.ops`, a custom `call`, PyTorch
    modules and SavedModels.

    Args:
        model: The model.
        infer: The model's traced inference.
        batch_size: The rows of a batch; None for any number, without padding.
    """
    suspects = list(_suspects(model)) if batch_size not in (None, 1) else []
    if suspects and not _may_run_on(infer.concrete) and _mixes(infer.concrete):
        where = suspects[0] if len(suspects) == 1 else f"model {model.name!r}, in one of {', '.join(suspects)}"
        fixed = any(isinstance(layer, Module) for layer in all_layers(model))  # PyTorch graphs fix the rows
        advice = (
            "compute it from each example separately, with the batch as the first axis"
            if fixed
            else "export with batch_size=None, which needs no padding"
        )
        raise ExportError(
            f"{where}: an example's output depends on the other examples of its batch, so rows that pad a partial "
            f"batch would count; {advice}"
        )


def _suspects(model: keras.Model) -> Iterator[str]:
    """Yield descriptions of the layers, models and operations with the user's code."""
    for layer in all_layers(model):
        if _runs_own_code(layer):
            yield f"{'model' if isinstance(layer, keras.Model) else 'layer'} {layer.name!r}"
        for operation in getattr(layer, "operations", ()):
            if not isinstance(operation, keras.layers.Layer):
                yield f"operation {operation.name!r}"


def _runs_own_code(layer: keras.layers.Layer) -> bool:
    """Return whether a layer runs the user's code; all others process each row separately, or are exported that way."""
    package = type(layer).__module__.partition(".")[0]
    if package == "odt_sim":
        return isinstance(layer, keras.Model)  # a PyTorch module or a SavedModel
    return package != "keras" or isinstance(layer, keras.layers.Lambda)


def _may_run_on(function: Any) -> bool:
    """Return whether a function has a loop, which random data might never end."""
    return any(op.type in LOOPS for op in function.graph.get_operations())


def _mixes(function: Any) -> bool:
    """Return whether the first row's outputs change with the other rows, on random batches."""
    random = np.random.default_rng(0)
    states = _states(function)
    trials = 1 if sum(value.shape.num_elements() for _, value in states) > LARGE else TRIALS

    def first(arguments: Any) -> list[Any]:
        for handle, value in states:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        positional, named = arguments
        return [output[0] for output in tf.nest.flatten(function(*positional, **named))]

    def batch() -> Any:
        return tf.nest.map_structure(lambda spec: _drawn(spec, random), function.structured_input_signature)

    try:
        for _ in range(trials):
            one, other = batch(), batch()
            mixed = tf.nest.map_structure(lambda a, b: tf.concat([a[:1], b[1:]], 0), one, other)
            pairs = zip(first(one), first(mixed), strict=True)
            if not all(np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True) for a, b in pairs):
                return True
    except tf.errors.OpError:  # random inputs are outside the model's valid range
        return False
    finally:
        for handle, value in states:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return False


def _states(function: Any) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Return the handles and values of the variables that a call may change: weights, counters and random states."""
    handles = [outer for outer, _ in function.graph.captures if outer.dtype == tf.resource]
    kinds = [(handle, handle._handle_data.shape_and_type) for handle in handles if handle._handle_data]
    return [
        (handle, tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(kind[0].dtype)))
        for handle, kind in kinds
        if kind
    ]


def _drawn(spec: tf.TensorSpec, random: np.random.Generator) -> tf.Tensor:
    """Return random values; integers are 0 or 1, which every vocabulary contains."""
    if spec.dtype.is_floating:
        return tf.constant(random.normal(size=spec.shape), spec.dtype)
    return tf.cast(random.integers(0, 2, spec.shape), spec.dtype)
