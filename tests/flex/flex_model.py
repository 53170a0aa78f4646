"""A small model of the Flex flavour in TensorFlow's own interpreter."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

from odt_sim.export import export_model

BATCH = 8
RATE = np.float32(0.05)
Batch = dict[str, NDArray[Any]]


class FlexModel:
    """A fresh interpreter of a file, before any restore."""

    def __init__(self, path: Path) -> None:
        with pytest.warns(UserWarning, match="tf.lite.Interpreter is deprecated"):
            self.interpreter = tf.lite.Interpreter(str(path), num_threads=1)

    def call(self, signature: str, **inputs: Any) -> dict[str, NDArray[Any]]:
        return self.interpreter.get_signature_runner(signature)(**inputs)

    def train(self, batch: Batch, **more: Any) -> dict[str, NDArray[Any]]:
        return self.call("train", **batch, learning_rate=RATE, **more)

    def save(self, path: Path) -> dict[str, NDArray[Any]]:
        return self.call("save", checkpoint_path=np.array(str(path), np.bytes_))

    def restore(self, path: Path) -> dict[str, NDArray[Any]]:
        return self.call("restore", checkpoint_path=np.array(str(path), np.bytes_))

    def parameters(self) -> list[NDArray[Any]]:
        values = self.call("parameters")
        return [values[f"a{i}"] for i in range(len(values))]


def export(model: Any, folder: Path, **options: Any) -> Path:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return export_model(
        model, folder / "m.tflite", **{"loss": loss, "optimizer": "adam", "batch_size": BATCH, **options}
    )


def small_cnn() -> Any:
    keras.utils.set_random_seed(3)
    # BatchNormalization cancels a bias: its gradient is only rounding, which Adam would turn into full steps.
    body = [layers.Conv2D(4, 3, activation="relu", use_bias=False, name="conv"), layers.MaxPooling2D(2)]
    body.append(layers.BatchNormalization(name="norm"))
    head = [layers.Flatten(), layers.Dropout(0.2), layers.Dense(3, name="classifier")]
    return keras.Sequential([layers.Input((8, 8, 1)), *body, *head], name="cnn")


def batches(model: Any, count: int, seed: int = 7) -> Iterator[Batch]:
    """Yield batches for a classifier into three."""
    random = np.random.default_rng(seed)
    (x,) = model.inputs
    for _ in range(count):
        values = random.uniform(0, 5, (BATCH, *x.shape[1:])).astype(x.dtype)
        y, weight = random.integers(0, 3, BATCH).astype(np.int32), random.uniform(0.5, 1.5, BATCH)
        yield {"x": values, "y": y, "sample_weight": weight.astype(np.float32)}
