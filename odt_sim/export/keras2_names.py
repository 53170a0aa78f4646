"""Keras 2 names that Keras 3 lacks, so that training functions written for Keras 2 run unchanged."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf


def _read_value(variable: keras.Variable) -> tf.Tensor:
    return variable.value.read_value()


def _minimize(
    optimizer: keras.optimizers.Optimizer,
    loss: tf.Tensor | Callable[[], tf.Tensor],
    var_list: Sequence[Any] | Callable[[], Sequence[Any]],
    tape: tf.GradientTape | None = None,
) -> None:
    """Apply the gradients of a loss, which is a tensor or a function."""
    tape = tape or tf.GradientTape()
    if callable(loss):
        with tape:
            loss = loss()
    variables = var_list() if callable(var_list) else var_list
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


_NAMES: tuple[tuple[type, str, Any], ...] = (
    (keras.Variable, "read_value", _read_value),
    (keras.optimizers.Optimizer, "minimize", _minimize),
    (keras.optimizers.Optimizer, "lr", property(lambda optimizer: optimizer.learning_rate)),
    (keras.metrics.Metric, "reset_states", lambda metric: metric.reset_state()),
)


def add_keras2_names() -> None:
    """Add missing Keras 2 names to Keras' classes.

    These are `weight.read_value()`, `optimizer.minimize(loss, var_list, tape)`, `optimizer.lr` and `metric.reset_states()`.
    """
    for owner, name, value in _NAMES:
        if not hasattr(owner, name):
            setattr(owner, name, value)


@contextmanager
def deprecations_ignored() -> Iterator[None]:
    """Silence Keras' deprecation warnings for the Keras 2 names that it still supports."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`model\.compiled_(loss|metrics)\(\)` is deprecated")
        yield
