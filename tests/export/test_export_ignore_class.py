"""Losses that ignore a class: training, checks of labels and evaluation leave its positions out, in files that say so."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from numpy.typing import NDArray
from sklearn import metrics as reference

from odt_sim import Device, TrainableModel
from odt_sim.data import Dataset, federate, iid
from odt_sim.data.checks.dataset_checks import check
from odt_sim.deploy.measure import measured
from odt_sim.device.examples import Examples
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import DataError
from odt_sim.export import export_model
from odt_sim.simulation.run.checks import check_fit

ROWS, POSITIONS, CLASSES, BATCH, RATE = 10, 5, 3, 4, 0.5
FACTORS = np.array([1.0, 3.0, 0.5], np.float32)


def tagger() -> Any:
    return keras.Sequential([layers.Input((POSITIONS, 4)), layers.Dense(CLASSES)], name="tagger")


def data(ignored: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return examples of one to five labels; the other positions are ignored."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, POSITIONS, 4)).astype(np.float32)
    y = random.integers(0, CLASSES, (ROWS, POSITIONS)).astype(np.int32)
    for i, row in enumerate(y):
        row[1 + i % POSITIONS :] = ignored
    return x, y


@pytest.fixture(scope="module", params=[0, -1, 255, -100])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path, int]:
    keras.utils.set_random_seed(1)
    network, path, ignored = tagger(), tmp_path_factory.mktemp("ignored") / "model.tflite", request.param
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored)
    factors = dict(enumerate(FACTORS.tolist()))
    export_model(network, path, loss=loss, optimizer=keras.optimizers.SGD(RATE), batch_size=BATCH, class_weight=factors)
    return network, loss, path, ignored


def test_training_is_that_of_keras(exported: tuple[Any, Any, Path, int]) -> None:
    network, loss, path, ignored = exported
    network = keras.models.clone_model(network)
    network.set_weights(exported[0].get_weights())
    network.compile(keras.optimizers.SGD(RATE), loss)
    device = Device(TrainableModel.load(path), data(ignored))
    for batch in device.batches(TrainingPlan(epochs=2)):  # the third is partial
        x, y = np.asarray(batch.x)[: batch.examples], np.asarray(batch.y)[: batch.examples]
        weights = FACTORS[np.where(y == ignored, 0, y)]
        expected = network.train_on_batch(x, y, sample_weight=weights, return_dict=True)["loss"]
        network.reset_metrics()
        assert device.train_step(batch) == pytest.approx(float(expected), rel=1e-5)
    for found, weight in zip(device.parameters().tensors(), network.get_weights(), strict=True):
        np.testing.assert_allclose(found, weight, atol=1e-6)


def test_figures_count_the_other_positions(exported: tuple[Any, Any, Path, int]) -> None:
    network, loss, path, ignored = exported
    (x, y), model = data(ignored), TrainableModel.load(path)
    device = Device(model, (x, y), test=(x, y))
    outputs, counts = network.predict(x, verbose=0), y != ignored
    labels, answers = y[counts], outputs[counts].argmax(axis=-1)
    found = device.evaluate()
    assert found["loss"] == pytest.approx(float(loss(y, outputs)), rel=1e-5) == pytest.approx(device.loss("test"))
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]), rel=1e-5)
    assert found["accuracy"] == pytest.approx((answers == labels).mean())
    scores, occurring = keras.ops.log_softmax(outputs[counts]).numpy(), np.unique(labels)
    recall = reference.recall_score(labels, answers, labels=occurring, average="macro")
    assert found["balanced_accuracy"] == pytest.approx(recall)
    assert found["auc"] == pytest.approx(
        np.mean([reference.roc_auc_score(labels == label, scores[:, label]) for label in occurring])
    )
    again = measured(model.content, model, Examples(x, y), "m")
    assert {name: again[name] for name in found} == pytest.approx(found)


def test_data_with_the_ignored_label_fits(exported: tuple[Any, Any, Path, int]) -> None:
    (x, y), model = data(exported[3]), TrainableModel.load(exported[2])
    check_fit(model, federate(check(Dataset("d", x, y, classes=CLASSES)), iid, devices=2, seed=0), TrainingPlan())
    y[4, 3:] = 7
    with pytest.raises(DataError, match="d, y: label 7 is out of range"):
        Examples.checked(model, x, y, "d")


def test_refused_labels_say_how_to_ignore_them(tmp_path: Path) -> None:
    path = export_model(tagger(), tmp_path / "m", loss="sparse_categorical_crossentropy", optimizer="sgd")
    model = TrainableModel.load(path)
    for label in (-1, 255):
        x, y = data(label)
        hint = f"; export the model with ignore_class={label} in its loss, or"
        with pytest.raises(DataError, match=hint):
            Examples.checked(model, x, y, "d")
        with pytest.raises(DataError, match=hint):
            check_fit(
                model, federate(check(Dataset("d", x, y, classes=CLASSES)), iid, devices=2, seed=0), TrainingPlan()
            )
