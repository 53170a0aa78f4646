"""The models of `conf/model` train on LiteRT as in Keras, or as close to float64 as Keras does."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from coverage_exports import keep
from numpy.typing import NDArray
from parity.case import Case
from parity.models import CONFIGURED, MODELS, SENSITIVE

pytestmark = pytest.mark.slow
SEED = 4  # also of `of_small_images`: masks of dropout are equal
RATE = 0.01
IDLE = "key/bias"  # the softmax of attention cancels it: its gradient is rounding alone, which Adam makes large


@pytest.mark.parametrize(
    "case", [case for case in MODELS.cases if case.name not in SENSITIVE], ids=lambda case: case.name
)
def test_configured_model_trains_like_keras(case: Case, twins: Any) -> None:
    keras.utils.set_random_seed(SEED)
    pair = twins(case.build(), case.loss(), case.optimizer())
    assert f"{pair.model.count_params():,} parameters" in summary(case)
    keep(case, pair.path)
    pair.agree()


@pytest.mark.parametrize("case", [case for case in MODELS.cases if case.name in SENSITIVE], ids=lambda case: case.name)
def test_sensitive_model_is_as_close_to_float64_as_keras(
    case: Case, twins: Any, of_small_images: Callable[[str], Path]
) -> None:
    """Many BatchNormalization layers, and Adam on small gradients, magnify rounding, which may flip a ReLU6.

    This happens in Keras as on LiteRT, mostly in the first steps. So each of seven starts from the same weights and slots,
    and the median counts.
    """
    keras.utils.set_random_seed(SEED)
    path = of_small_images(case.name) if case.name == "mobilenet" else None  # which tests/model exports too
    pair = twins(case.build(), case.loss(), case.optimizer(), path)
    assert f"{pair.model.count_params():,} parameters" in summary(case)
    exact = in_float64(case)
    exact.set_weights(pair.model.get_weights())
    lite, own = np.median([errors_of_a_step(pair, exact) for _ in range(7)], axis=0)
    assert lite < 1e-5
    assert lite < 2 * own


def summary(case: Case) -> str:
    return (CONFIGURED / f"{case.name}.yaml").read_text().partition("\n")[0]


def in_float64(case: Case) -> Any:
    """Return the model in float64, with the dropout masks of float32."""
    keras.config.set_dtype_policy("float64")
    try:
        keras.utils.set_random_seed(SEED)
        model = case.build()
    finally:
        keras.config.set_dtype_policy("float32")
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.call = partial(dropped, layer)
    optimizer = case.optimizer()
    optimizer.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False, run_eagerly=True)
    return model


def dropped(layer: Any, x: Any, training: bool = False) -> Any:
    ones = keras.ops.ones(x.shape, "float32")
    return x * keras.ops.cast(keras.random.dropout(ones, layer.rate, seed=layer.seed_generator), x.dtype)


def errors_of_a_step(pair: Any, exact: Any) -> tuple[float, float]:
    """Train all three for a step from one state; return the distances of LiteRT and Keras from float64.

    Both are root mean squares over all weights, relative to the step.
    """
    state, double = ([*model.weights, *model.optimizer.variables] for model in (pair.model, exact))
    for single, variable in zip(state, double, strict=True):
        single.assign(variable.numpy())
        variable.assign(single.numpy())  # rounded
    pair.restore()
    before = weights_of(exact)
    x, y, weight = pair.batch()
    for model in (pair.model, exact):
        model.optimizer.learning_rate = RATE
        model.train_on_batch(x, y, sample_weight=weight)
        model.reset_metrics()
    pair.call("train", x=x, y=y, sample_weight=weight, learning_rate=np.float32(RATE))
    after = weights_of(exact)
    step = np.linalg.norm(after - before)
    lite = joined(pair.model, pair.listed("parameters", "a"))
    return np.linalg.norm(lite - after) / step, np.linalg.norm(weights_of(pair.model) - after) / step


def weights_of(model: Any) -> NDArray[np.float64]:
    return joined(model, model.get_weights())


def joined(model: Any, values: list[NDArray[Any]]) -> NDArray[np.float64]:
    """Return the values of a model's weights as one vector, without idle ones."""
    pairs = zip(model.weights, values, strict=True)
    return np.concatenate([value.ravel() for v, value in pairs if not v.path.endswith(IDLE)]).astype(np.float64)
