"""Random layers and ops: draws differ by step, repeat from the same state, and have the stated distribution."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from odt_sim.model.trainable import TrainableModel

pytestmark = pytest.mark.filterwarnings("ignore:.*training steps were not compared with Keras")  # some draw otherwise


def dropout() -> Any:
    return [layers.Dense(9, activation="relu"), layers.Dropout(0.4), layers.Dense(8), layers.Dropout(0.3)]


class Unseeded(layers.Layer):  # type: ignore[misc]
    """A layer that draws without a seed of its own: from TensorFlow and from Keras."""

    def call(self, x: Any, training: bool = False) -> Any:
        if not training:
            return x
        noise = tf.random.normal(tf.shape(x)) + tf.random.truncated_normal(tf.shape(x)) + tf.random.shuffle(x)
        return x * tf.random.uniform(tf.shape(x), 0.5, 1.5) + noise + keras.random.normal(keras.ops.shape(x))


@pytest.fixture(scope="module", params=[(dropout, 2), (lambda: [Unseeded()], 2)], ids=["dropout", "unseeded"])
def drawing(request: pytest.FixtureRequest, twins: Any) -> tuple[Any, int]:
    """Return the twins of a model with random layers, and how many generators it has."""
    build, generators = request.param
    keras.utils.set_random_seed(6)
    return twins(keras.Sequential([layers.Input((12,)), *build(), layers.Dense(3)])), generators


def steps(dropped: Any, states: dict[str, Any], count: int = 3) -> tuple[list[float], dict[str, Any]]:
    """Return the losses of steps at learning rate 0, which differ only by their draws, and the slots afterwards."""
    interpreter = Interpreter(str(dropped.path), num_threads=1)
    slots = interpreter.get_signature_runner("optimizer_state")()
    interpreter.get_signature_runner("restore_optimizer_state")(**{**slots, **states})
    train = interpreter.get_signature_runner("train")
    x = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    rest = {"sample_weight": np.ones(8, np.float32), "learning_rate": np.float32(0.0)}
    losses = [float(train(x=x, y=np.arange(8, dtype=np.int32) % 3, **rest)["loss"]) for _ in range(count)]
    return losses, interpreter.get_signature_runner("optimizer_state")()


def test_draws_follow_the_random_state(drawing: tuple[Any, int]) -> None:
    dropped, generators = drawing
    manifest = TrainableModel.load(dropped.path).manifest
    assert manifest is not None
    assert len(manifest.random_states) == generators

    def states(seed: int) -> dict[str, Any]:
        return {f"s{i}": np.array([seed + n, 0], np.int32) for n, i in enumerate(manifest.random_states)}

    losses, _ = steps(dropped, states(11))
    assert len(set(losses)) == 3
    first, slots = steps(dropped, states(11), count=1)
    rest, _ = steps(dropped, slots, count=2)
    assert first + rest == losses
    assert not set(steps(dropped, states(12))[0]) & set(losses)


def test_inference_draws_nothing(drawing: tuple[Any, int]) -> None:
    dropped, _ = drawing
    x = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    expected = dropped.model(x, training=False).numpy()
    np.testing.assert_allclose(dropped.call("infer", x=x)["logits"], expected, atol=1e-5)


def test_flipped_image_is_itself_or_mirrored(twins: Any) -> None:
    model = keras.Sequential(
        [layers.Input((1, 2, 1)), layers.RandomFlip("horizontal"), layers.Flatten(), layers.Dense(2)]
    )
    model.layers[-1].set_weights([np.eye(2, dtype=np.float32), np.zeros(2, np.float32)])
    flipped = twins(model, batch_size=1)
    call = {"x": np.array([[[[0.0], [5.0]]]], np.float32), "y": np.array([1], np.int32)}
    call |= {"sample_weight": np.ones(1, np.float32), "learning_rate": np.float32(0.0)}
    losses = [round(float(flipped.call("train", **call)["loss"]), 4) for _ in range(20)]
    assert set(losses) == {0.0067, 5.0067}  # log(1 + e^-5), and 5 more


def test_noise_has_the_stated_deviation(twins: Any) -> None:
    model = keras.Sequential([layers.Input((500,)), layers.GaussianNoise(0.3), layers.Dense(500)])
    model.layers[-1].set_weights([np.eye(500, dtype=np.float32), np.zeros(500, np.float32)])
    noisy = twins(model, loss="mean_squared_error")
    zero = np.zeros((8, 500), np.float32)
    call = {"x": zero, "y": zero, "sample_weight": np.ones(8, np.float32), "learning_rate": np.float32(0.0)}
    losses = [float(noisy.call("train", **call)["loss"]) for _ in range(4)]
    assert len(set(losses)) == 4
    np.testing.assert_allclose(losses, 0.09, rtol=0.1)  # the mean of 4,000 squares; its deviation is 2%
