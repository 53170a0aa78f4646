"""Signatures of an optimizer's options: `schedule` for the learning rate, and `finalize` for the end of training."""

import keras
import tensorflow as tf

from odt_sim.export.inlining import inlined
from odt_sim.export.lowering import Trace
from odt_sim.export.optimizers import Schedule
from odt_sim.export.steps import names_of
from odt_sim.export.tracing import traced


def trace_options(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, schedule: Schedule | None
) -> dict[str, Trace]:
    """Trace `schedule` if there is a schedule, and `finalize` if the optimizer averages the weights."""
    traces = {} if schedule is None else {"schedule": trace_schedule(schedule)}
    return traces | ({"finalize": trace_finalize(model, optimizer)} if optimizer.use_ema else {})


def trace_schedule(schedule: Schedule) -> Trace:
    """Trace `schedule(step) -> learning_rate`: the rate of a step, counted from 0, as Keras computes it."""

    def rate(step: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"learning_rate": tf.cast(schedule(tf.cast(step, tf.int64)), tf.float32)}

    return inlined(traced(rate, [tf.TensorSpec([], tf.int32, name="step")], ()))


def trace_finalize(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Trace:
    """Trace `finalize() -> done`, which sets the weights to their moving averages, as `fit` does at the end."""

    def finalize() -> dict[str, tf.Tensor]:
        optimizer.finalize_variable_values(model.trainable_variables)
        return {"done": tf.constant(1)}

    return inlined(traced(finalize, [], names_of(model)))
