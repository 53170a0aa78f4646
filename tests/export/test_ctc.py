"""The loss `ctc`: values and gradients of Keras, and training like Keras."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from keras import layers
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel, TrainingPlan
from odt_sim.data import Dataset, federate, iid
from odt_sim.errors import DataError, ExportError, ExportWarning
from odt_sim.export import export_model, zoo
from odt_sim.export.keras.ctc import ctc
from odt_sim.simulation.run.checks import check_fit

FRAMES, CLASSES, LABELS = 8, 5, 3


def transcripts(examples: int, labels: int, classes: int, random: np.random.Generator) -> NDArray[np.int32]:
    """Return labels from 1 of random lengths, with zeros behind them."""
    y = random.integers(1, classes, (examples, labels))
    return np.where(np.arange(labels) < random.integers(0, labels + 1, (examples, 1)), y, 0).astype(np.int32)


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("shape", [(5, 12, 4, 6), (4, 14, 7, 4), (3, 5, 1, 3)])
def test_values_and_gradients_are_those_of_keras(shape: tuple[int, int, int, int], scale: float) -> None:
    examples, frames, labels, classes = shape
    random = np.random.default_rng(0)
    y = transcripts(examples, labels, classes, random)
    logits = tf.constant(random.normal(0, scale, (examples, frames, classes)), tf.float32)
    found = []
    for loss in (keras.losses.ctc, ctc):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            values = loss(y, logits)
        found.append((values, tape.gradient(values, logits)))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=2e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], atol=3e-5)


def test_labels_of_one_frame_each_have_the_loss_of_their_probabilities() -> None:
    probabilities = np.float32([[[0.2, 0.5, 0.3], [0.1, 0.3, 0.6]]])
    assert float(ctc([[1, 2]], np.log(probabilities))[0]) == pytest.approx(-np.log(0.5 * 0.6))
    one_label = 0.5 * 0.3 + 0.5 * 0.1 + 0.2 * 0.3  # 1 1, 1 blank, blank 1
    assert float(ctc([[1, 0]], np.log(probabilities))[0]) == pytest.approx(-np.log(one_label))


def test_too_few_frames_give_an_infinite_loss_without_a_gradient() -> None:
    logits = tf.zeros((1, 2, 3))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = ctc([[2, 2]], logits)
    assert np.isinf(loss)
    assert not np.any(tape.gradient(loss, logits))


def network(*ends: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    first = layers.Conv1D(6, 3, padding="same", activation="relu")
    return keras.Sequential([keras.Input((FRAMES, 4)), first, layers.Dense(CLASSES), *ends])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> TrainableModel:
    example = keras.Input((FRAMES, 4)), keras.Input((LABELS,), dtype="int32")
    path = tmp_path_factory.mktemp("ctc") / "model.tflite"
    export_model(network(), path, loss="ctc", optimizer="sgd", batch_size=4, example=example)
    return TrainableModel.load(path)


@pytest.mark.slow
def test_training_agrees_with_keras_in_full_and_partial_batches(exported: TrainableModel) -> None:
    random = np.random.default_rng(2)
    x, y = random.normal(size=(6, FRAMES, 4)).astype(np.float32), transcripts(6, LABELS, CLASSES, random)
    device = Device(exported, (x, y), plan=TrainingPlan(2, 0.1))
    losses = device.train()
    model, expected = network(), []
    model.compile(keras.optimizers.SGD(0.1), keras.losses.CTC())
    for batch in Device(exported, (x, y), plan=TrainingPlan(2, 0.1)).batches():
        model.reset_metrics()
        expected.append(model.train_on_batch(batch.x[: batch.examples], batch.y[: batch.examples]))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name, weight in zip(device.weights.layout.names, model.weights, strict=True):
        np.testing.assert_allclose(device.weights[name], weight.numpy(), atol=1e-6)
    figures = device.evaluate("train")
    assert figures["loss"] == pytest.approx(float(np.mean(keras.losses.ctc(y, model(x)))), rel=1e-5)
    assert {*figures} == {"examples", "loss", "token_error_rate", "exact_match"}


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1, 2, CLASSES], rf"example 0 has the label {CLASSES}; .* the labels 1\.\.{CLASSES - 1}, followed by zeros"),
        ([1, 0, 2], r"example 0 has a 0 before a label"),
    ],
)
def test_data_of_other_labels_is_refused(exported: TrainableModel, y: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Device(exported, (np.zeros((1, FRAMES, 4), np.float32), np.array([y])))


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_labels_of_a_fleet_out_of_range_are_told_of_padding(exported: TrainableModel, label: int) -> None:
    x, y = np.zeros((9, FRAMES, 4), np.float32), np.full((9, LABELS), label, np.int32)
    y[:, 0] = 1  # labels from 1 to the number of classes need no subtraction
    data = federate(Dataset("d", x, y), iid, 1, seed=0)
    with pytest.raises(
        DataError, match=rf"^data d: y: example 0 has the label {label}; .*1\.\.4, followed by zeros: pad"
    ):
        check_fit(exported, data, TrainingPlan(1, 0.1))


def test_configured_model_has_the_parameters_that_it_names() -> None:
    path = Path(__file__).parents[2] / "conf" / "model" / "transcriber.yaml"
    build = yaml.safe_load(path.read_text())["build"]
    model, (_, y) = zoo.transcriber(**{key: value for key, value in build.items() if key != "_target_"})
    assert f"{model.count_params():,} parameters" in path.read_text().partition("\n")[0]
    assert y.shape == (None, 5)


def test_targets_have_a_label_for_each_frame_without_an_example(tmp_path: Path) -> None:
    with pytest.warns(ExportWarning, match="loss ctc: takes logits, but the model ends in a softmax"):
        path = export_model(network(layers.Softmax()), tmp_path / "model.tflite", loss="ctc", optimizer="sgd")
    assert TrainableModel.load(path).targets[""].shape[1:] == (FRAMES,)


class Called(keras.Model):
    """A model whose output has a mask, and whose graph cannot be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.masking, self.dense = layers.Masking(), layers.Dense(CLASSES)

    def call(self, x: Any) -> Any:
        return self.dense(self.masking(x))


def test_mask_of_a_model_with_its_own_call_is_refused(tmp_path: Path) -> None:
    example = np.ones((2, FRAMES, 4), np.float32), np.ones((2, LABELS), np.int32)
    with pytest.raises(
        ExportError, match=r"loss ctc: has values of 1 axes, but the mask .*, so remove the mask, such as with"
    ):
        export_model(Called(), tmp_path / "model.tflite", loss="ctc", optimizer="sgd", example=example)


@pytest.mark.slow
def test_masked_frames_are_left_out(tmp_path: Path) -> None:
    keras.utils.set_random_seed(3)
    lstm = layers.LSTM(5, return_sequences=True)
    model = keras.Sequential([keras.Input((FRAMES, 4)), layers.Masking(), lstm, layers.Dense(CLASSES)])
    random, lengths = np.random.default_rng(4), [8, 5, 6, 7]
    x = random.normal(size=(4, FRAMES, 4)).astype(np.float32) * (np.arange(FRAMES) < np.c_[lengths])[..., np.newaxis]
    y = transcripts(4, LABELS, CLASSES, random)
    path = export_model(model, tmp_path / "model.tflite", loss="ctc", optimizer="sgd", batch_size=4, example=(x, y))
    device = Device(TrainableModel.load(path), (x, y), plan=TrainingPlan(1, 0.1))
    logits = device.outputs("train")
    assert (logits[1, 5:].argmax(-1) == 0).all()

    def loss() -> Any:
        return tf.reduce_mean([keras.losses.ctc(y[i : i + 1], model(x[i : i + 1, :n])) for i, n in enumerate(lengths)])

    assert device.loss("train") == pytest.approx(float(loss()), rel=1e-5)
    device.train()
    with tf.GradientTape() as tape:
        value = loss()
    for weight, gradient in zip(model.weights, tape.gradient(value, model.weights), strict=True):
        expected = weight.numpy() - 0.1 * gradient
        np.testing.assert_allclose(device.weights[weight.path], expected, atol=1e-6)
