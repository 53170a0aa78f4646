"""LiteRT and Keras minimize the same loss, and evaluation on the host knows it."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, losses

from odt_sim.metrics.device import example_losses, figures
from odt_sim.model.manifest import LOSSES, REGRESSIONS
from odt_sim.model.trainable import TrainableModel


def model(*tail: Any) -> Any:
    return keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="relu"), *(tail or [layers.Dense(3)])])


def softmax(*tail: Any) -> Any:
    return model(layers.Dense(3, activation="softmax"), *tail)


TRAINED: dict[str, Callable[[], tuple[Any, Any]]] = {
    "sparse": lambda: (model(), losses.SparseCategoricalCrossentropy(from_logits=True)),
    "sparse of softmax": lambda: (softmax(), losses.SparseCategoricalCrossentropy()),
    "sparse of probabilities": lambda: (softmax(layers.Rescaling(1.0)), losses.SparseCategoricalCrossentropy()),
    "categorical": lambda: (model(), losses.CategoricalCrossentropy(from_logits=True)),
    "categorical of softmax": lambda: (softmax(), losses.CategoricalCrossentropy()),
    "categorical, smoothed": lambda: (model(), losses.CategoricalCrossentropy(True, label_smoothing=0.1)),
    "binary": lambda: (model(), losses.BinaryCrossentropy(from_logits=True)),
    "binary of sigmoid, by name": lambda: (model(layers.Dense(1, activation="sigmoid")), "binary_crossentropy"),
    "binary of probabilities, smoothed": lambda: (
        model(layers.Dense(2, activation="sigmoid"), layers.Rescaling(1.0)),
        losses.BinaryCrossentropy(label_smoothing=0.1),
    ),
    "mean squared error": lambda: (model(), "mse"),
    "mean absolute error": lambda: (model(), "mae"),
    "Huber": lambda: (model(), losses.Huber()),
    "cosine similarity": lambda: (model(), "cosine_similarity"),
    "KL divergence": lambda: (softmax(), "kl_divergence"),
}


@pytest.mark.parametrize("name", TRAINED)
def test_losses_train_as_in_keras(name: str, twins: Any) -> None:
    keras.utils.set_random_seed(2)
    network, loss = TRAINED[name]()
    pair = twins(network, loss)
    pair.agree()
    if isinstance(loss, str):
        assert not TrainableModel.load(pair.path).from_logits


OUTPUTS = np.array([[0.1, -2.0, 3.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]], np.float32)
PROBABILITIES = np.array([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0], [0.3, 0.3, 0.4]], np.float32)


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_evaluation_has_the_loss_of_keras(loss: str, from_logits: bool) -> None:
    from_logits = from_logits and loss.endswith("crossentropy")
    settings = {"from_logits": from_logits} if loss.endswith("crossentropy") else {}
    outputs = OUTPUTS if from_logits or loss in REGRESSIONS else PROBABILITIES
    y = np.array([2, 1, 0]) if loss.startswith("sparse") else np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0]], np.float32)
    expected = keras.losses.get(loss)(y, outputs, **settings)
    np.testing.assert_allclose(example_losses(outputs, y, loss, from_logits), expected, rtol=1e-5)


def test_a_binary_classifier_is_right_where_it_is_on_the_labels_side() -> None:
    y = np.array([[1, 0], [1, 1]], np.float32)
    logits = np.array([[0.2, -3.0], [np.nan, -0.1]], np.float32)
    assert figures(logits, y, "binary_crossentropy", True)["accuracy"] == 0.5
    assert figures(np.array([[0.2, 0.1], [0.9, 0.6]]), y, "binary_crossentropy", False)["accuracy"] == 0.75
