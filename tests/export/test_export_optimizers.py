"""After five steps LiteRT and Keras hold the same weights and optimizer slots, with every optimizer."""

from collections.abc import Callable
from typing import Any

import keras
import pytest
from keras import layers, optimizers

# Keras divides gradients here, and a sparse one of an embedding by dynamic shapes, or not at all.
DENSE_ONLY = {"RMSprop", "centered RMSprop with momentum", "Adagrad", "Adadelta", "loss scale"}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: optimizers.SGD(),
    "momentum": lambda: optimizers.SGD(momentum=0.9),
    "nesterov": lambda: optimizers.SGD(momentum=0.9, nesterov=True),
    "RMSprop": lambda: optimizers.RMSprop(),
    "centered RMSprop with momentum": lambda: optimizers.RMSprop(momentum=0.9, centered=True),
    "Adagrad": lambda: optimizers.Adagrad(),
    "Adadelta": lambda: optimizers.Adadelta(),
    "Adam": lambda: optimizers.Adam(),
    "AMSGrad": lambda: optimizers.Adam(amsgrad=True),
    "AdamW": lambda: optimizers.AdamW(weight_decay=0.1),
    "Adamax": lambda: optimizers.Adamax(),
    "Nadam": lambda: optimizers.Nadam(),
    "Lion": lambda: optimizers.Lion(),
    "Ftrl": lambda: optimizers.Ftrl(l1_regularization_strength=0.01, l2_regularization_strength=0.01),
    "Lamb": lambda: optimizers.Lamb(),
    "Muon": lambda: optimizers.Muon(),
    "weight decay": lambda: optimizers.SGD(momentum=0.9, weight_decay=0.1),
    "clipping by value": lambda: optimizers.SGD(clipvalue=0.02),
    "clipping by norm": lambda: optimizers.SGD(clipnorm=0.1),
    "clipping by global norm": lambda: optimizers.SGD(global_clipnorm=0.1),
    "loss scale": lambda: optimizers.SGD(loss_scale_factor=4.0),
    "moving averages that overwrite": lambda: optimizers.SGD(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "gradient accumulation": lambda: optimizers.Adam(gradient_accumulation_steps=2),
}


def words() -> Any:
    """Returns a model whose embedding has a sparse gradient, as no dense layer has."""
    x = layers.Input((4,), dtype="int32")
    h = layers.Flatten()(layers.Embedding(6, 3)(x))
    return keras.Model(x, layers.Dense(5)(h))


def perceptron() -> Any:
    return keras.Sequential([layers.Input((6,)), layers.Dense(5)])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_and_slots_agree_with_keras(name: str, twins: Any) -> None:
    keras.utils.set_random_seed(3)
    pair = twins(perceptron() if name in DENSE_ONLY else words(), optimizer=OPTIMIZERS[name]())
    pair.agree()
    stateless = name == "SGD" or name.startswith(("clipping", "loss"))
    assert bool(pair.slots()[0]) != stateless
