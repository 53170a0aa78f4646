"""Dropout: masks differ by step and repeat from the same state."""

from typing import Any

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from keras import layers

from odt_sim.model.trainable import TrainableModel


@pytest.fixture(scope="module")
def dropped(twins: Any) -> Any:
    keras.utils.set_random_seed(6)
    return twins(
        keras.Sequential(
            [
                layers.Input((12,)),
                layers.Dense(9, activation="relu"),
                layers.Dropout(0.4),
                layers.Dense(8),
                layers.Dropout(0.3),
                layers.Dense(3),
            ]
        )
    )


def steps(dropped: Any, states: dict[str, Any] | None, count: int = 3) -> list[float]:
    """Return the losses of steps at learning rate 0, which differ only by their masks."""
    interpreter = Interpreter(str(dropped.path), num_threads=1)
    if states:
        slots = interpreter.get_signature_runner("optimizer_state")()
        interpreter.get_signature_runner("restore_optimizer_state")(**{**slots, **states})
    train = interpreter.get_signature_runner("train")
    x = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    rest = {"sample_weight": np.ones(8, np.float32), "learning_rate": np.float32(0.0)}
    return [float(train(x=x, y=np.arange(8, dtype=np.int32) % 3, **rest)["loss"]) for _ in range(count)]


def test_masks_follow_the_random_state(dropped: Any) -> None:
    manifest = TrainableModel.load(dropped.path).manifest
    assert manifest is not None
    assert len(manifest.random_states) == 2

    def states(seed: int, count: int) -> dict[str, Any]:
        return {f"s{i}": np.array([seed + n, count], np.int32) for n, i in enumerate(manifest.random_states)}

    first = steps(dropped, states(11, 0))
    assert len(set(first)) == 3
    assert steps(dropped, states(11, 0)) == first
    assert steps(dropped, states(11, 2), count=1) == first[2:]
    assert not set(steps(dropped, states(12, 0))) & set(first)


def test_inference_ignores_dropout(dropped: Any) -> None:
    x = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    expected = dropped.model(x, training=False).numpy()
    np.testing.assert_allclose(dropped.call("infer", x=x)["logits"], expected, atol=1e-5)
