"""Optimizers on an embedding, whose gradient is sparse, and a dense layer."""

from collections.abc import Callable
from typing import Any

from keras import optimizers

from parity.case import Case, Family, perceptron, words


def sparse(name: str, covers: str, optimizer: Callable[[], Any]) -> Case:
    return Case(name, (covers,), words, optimizer=optimizer)


def without_bias() -> Any:
    optimizer = optimizers.AdamW(weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def dense(name: str, covers: str, optimizer: Callable[[], Any]) -> Case:
    """Return a case on a dense layer, for options that Keras refuses with sparse gradients."""
    return Case(name, (covers,), perceptron, optimizer=optimizer)


OPTIMIZERS = Family(
    "Optimizers",
    "parity/optimizers.py",
    (
        sparse("SGD", "SGD", lambda: optimizers.SGD()),
        sparse("momentum", "SGD: momentum", lambda: optimizers.SGD(momentum=0.9)),
        sparse("Nesterov", "SGD: Nesterov", lambda: optimizers.SGD(momentum=0.9, nesterov=True)),
        sparse("RMSprop", "RMSprop", lambda: optimizers.RMSprop()),
        sparse(
            "centered RMSprop with momentum",
            "RMSprop: centered, momentum",
            lambda: optimizers.RMSprop(momentum=0.9, centered=True),
        ),
        sparse("Adagrad", "Adagrad", lambda: optimizers.Adagrad()),
        sparse("Adadelta", "Adadelta", lambda: optimizers.Adadelta()),
        sparse("Adam", "Adam", lambda: optimizers.Adam()),
        sparse("AMSGrad", "Adam: AMSGrad", lambda: optimizers.Adam(amsgrad=True)),
        sparse("AdamW", "AdamW", lambda: optimizers.AdamW(weight_decay=0.1)),
        sparse("Adamax", "Adamax", lambda: optimizers.Adamax()),
        sparse("Nadam", "Nadam", lambda: optimizers.Nadam()),
        sparse("Lion", "Lion", lambda: optimizers.Lion()),
        sparse(
            "Ftrl", "Ftrl", lambda: optimizers.Ftrl(l1_regularization_strength=0.01, l2_regularization_strength=0.01)
        ),
        sparse("Lamb", "Lamb", lambda: optimizers.Lamb(weight_decay=0.1)),
        sparse("Muon", "Muon", lambda: optimizers.Muon()),
        sparse("Adafactor", "Adafactor", lambda: optimizers.Adafactor()),
    ),
)

STEPS = Family(
    "Options of every optimizer",
    "parity/optimizers.py",
    (
        sparse("weight decay", "weight decay", lambda: optimizers.SGD(momentum=0.9, weight_decay=0.1)),
        sparse("decay with exclusions", "weight decay: exclusions", without_bias),
        sparse("clipping by value", "clipping: by value", lambda: optimizers.SGD(clipvalue=0.02)),
        sparse("clipping by norm", "clipping: by norm", lambda: optimizers.SGD(clipnorm=0.1)),
        sparse("clipping by global norm", "clipping: by global norm", lambda: optimizers.SGD(global_clipnorm=0.1)),
        dense("loss scale", "loss scale", lambda: optimizers.SGD(loss_scale_factor=4.0)),
        sparse(
            "moving averages that overwrite",
            "moving averages",
            lambda: optimizers.SGD(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
        ),
        sparse(  # two gradients may cancel, and Adam would magnify the remaining rounding error
            "gradient accumulation",
            "gradient accumulation",
            lambda: optimizers.Adam(epsilon=1e-3, gradient_accumulation_steps=2),
        ),
    ),
)
