"""Metrics that a manifest names by Keras' names have Keras' values, and the export records them."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from numpy.typing import NDArray

from odt_sim import Device
from odt_sim.data import Dataset, federate, iid
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import DataError, ExportError, ExportWarning
from odt_sim.export import export_model
from odt_sim.metrics.device import output_figures
from odt_sim.metrics.names import canonical
from odt_sim.model.contract.manifest import Output
from odt_sim.model.trainable import TrainableModel
from odt_sim.simulation.run.checks import check_fit

RANDOM = np.random.default_rng(5)
LABELS = RANDOM.integers(0, 7, 40).astype(np.int32)
ONE_HOT = np.eye(7, dtype=np.float32)[LABELS]
PROBABILITIES = RANDOM.dirichlet(np.full(7, 0.2), 40).astype(np.float32)
SIGMOIDS, MARKS = RANDOM.random((40, 3), np.float32), (RANDOM.random((40, 3)) < 0.4).astype(np.float32)
VALUES, TARGETS = RANDOM.random((40, 3), np.float32) + 0.5, RANDOM.random((40, 3), np.float32) + 0.5

CLASSES = Output(loss="categorical_crossentropy", from_logits=False, task="classification")
SEVERAL = Output(loss="binary_crossentropy", from_logits=False, task="multi_label")
REGRESSION = Output(loss="mean_squared_error", task="regression")
METRICS: list[tuple[Any, Output, NDArray[Any], NDArray[Any]]] = [
    (keras.metrics.SparseCategoricalAccuracy(), CLASSES, LABELS, PROBABILITIES),
    (keras.metrics.CategoricalAccuracy(), CLASSES, ONE_HOT, PROBABILITIES),
    (keras.metrics.SparseTopKCategoricalAccuracy(), CLASSES, LABELS, PROBABILITIES),
    (keras.metrics.TopKCategoricalAccuracy(), CLASSES, ONE_HOT, PROBABILITIES),
    (keras.metrics.Precision(), CLASSES, ONE_HOT, PROBABILITIES),
    (keras.metrics.Recall(), CLASSES, ONE_HOT, PROBABILITIES),
    (keras.metrics.F1Score(average="macro"), CLASSES, ONE_HOT, PROBABILITIES),
    (keras.metrics.OneHotMeanIoU(7), CLASSES, ONE_HOT, PROBABILITIES),
    (keras.metrics.BinaryAccuracy(), SEVERAL, MARKS, SIGMOIDS),
    (keras.metrics.Precision(), SEVERAL, MARKS, SIGMOIDS),
    (keras.metrics.Recall(), SEVERAL, MARKS, SIGMOIDS),
    (keras.metrics.F1Score(average="macro", threshold=0.5), SEVERAL, MARKS, SIGMOIDS),
    (keras.metrics.MeanSquaredError(), REGRESSION, TARGETS, VALUES),
    (keras.metrics.RootMeanSquaredError(), REGRESSION, TARGETS, VALUES),
    (keras.metrics.MeanAbsoluteError(), REGRESSION, TARGETS, VALUES),
    (keras.metrics.MeanAbsolutePercentageError(), REGRESSION, TARGETS, VALUES),
    (keras.metrics.MeanSquaredLogarithmicError(), REGRESSION, TARGETS, VALUES),
    (keras.metrics.LogCoshError(), REGRESSION, TARGETS, VALUES),
    (keras.metrics.CosineSimilarity(), REGRESSION, TARGETS, VALUES),
    (keras.metrics.R2Score(), REGRESSION, TARGETS, VALUES),
]


@pytest.mark.parametrize("case", METRICS, ids=lambda case: f"{case[0].name} of {case[1].task}")
def test_metric_has_the_value_of_keras(case: Any) -> None:
    metric, output, y, outputs = case
    metric.update_state(y, outputs)
    named = Output(output.name, output.loss, output.from_logits, task=output.task, metrics=(metric.name,))
    found = output_figures(named, outputs, y)
    assert found[canonical(metric.name)] == pytest.approx(float(metric.result()), rel=2e-6)


def classifier() -> Any:
    return keras.Sequential([layers.Input((3,)), layers.Dense(7, activation="softmax")])


def test_export_records_the_task_and_the_metrics_that_evaluation_computes(tmp_path: Path) -> None:
    model = classifier()
    compiled = ["accuracy", keras.metrics.TopKCategoricalAccuracy(3), keras.metrics.FalsePositives()]
    model.compile("sgd", "categorical_crossentropy", metrics=compiled)
    (output,) = TrainableModel.load(export_model(model, tmp_path / "m.tflite", task="ranking")).outputs
    assert (output.task, output.metrics) == ("ranking", ("accuracy",))
    (output,) = TrainableModel.load(export_model(model, tmp_path / "m.tflite", metrics=["precision"])).outputs
    assert (output.task, output.metrics) == ("classification", ("accuracy", "top_3", "precision"))


@pytest.mark.parametrize(
    ("metric", "setting"),
    [
        (keras.metrics.IoU(2, target_class_ids=[1]), "some classes"),
        (keras.metrics.BinaryIoU(target_class_ids=[1]), "some classes"),
        (keras.metrics.Precision(class_id=1), "some classes"),
        (keras.metrics.Precision(thresholds=0.9), r"another threshold than 0\.5"),
        (keras.metrics.BinaryAccuracy(threshold=0.3), r"another threshold than 0\.5"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_compiled_metric_with_its_own_settings_is_left_out(metric: Any, setting: str, tmp_path: Path) -> None:
    """Evaluation would compute the metric with other settings under its name."""
    model = keras.Sequential([layers.Input((4, 4, 1)), layers.Conv2D(1, 1, activation="sigmoid")])
    alike = [keras.metrics.BinaryIoU(), keras.metrics.Recall(thresholds=0.5), keras.metrics.MeanIoU(2)]
    model.compile("sgd", "binary_crossentropy", metrics=[metric, *alike])
    with pytest.warns(ExportWarning, match=f"^metric '{metric.name}' of compile: is for {setting}, which evaluation"):
        path = export_model(model, tmp_path / "m.tflite")
    (output,) = TrainableModel.load(path).outputs
    assert [canonical(name) for name in output.metrics] == ["iou", "recall", "iou"]


MASK = {
    "f": r"y: 255\.0 is out of range, the task segmentation takes 0\.\.1; rescale the targets, or set another task",
    "u": r"y has dtype int32, .* takes float32; choose a model for this data, or pass class labels",
}


def dice(y: Any, output: Any) -> Any:
    """A user's loss: 1 - Dice, for each example."""
    y, axes = keras.ops.cast(y, "float32"), (1, 2, 3)
    both, total = keras.ops.sum(y * output, axes), keras.ops.sum(y, axes) + keras.ops.sum(output, axes)
    return 1 - (2 * both + 1) / (total + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_segmentation_by_a_loss_of_the_user_has_metrics_and_checked_labels(dtype: Any, tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((6, 6, 1)), layers.Conv2D(1, 1, activation="sigmoid")])
    path = export_model(model, tmp_path / "m.tflite", loss=dice, optimizer="sgd", batch_size=4, task="segmentation")
    trainable = TrainableModel.load(path)
    assert (trainable.outputs[0].task, trainable.classes) == ("segmentation", 2)
    x = RANDOM.normal(size=(5, 6, 6, 1)).astype(np.float32)
    found = Device(trainable, (x, x > 0), test=(x, (x > 0).astype(dtype))).evaluate()
    reference = keras.metrics.BinaryIoU((0, 1))
    reference.update_state(x > 0, model(x))
    assert found["iou"] == pytest.approx(float(reference.result()), rel=1e-6)
    assert found["loss"] == pytest.approx(float(keras.ops.mean(dice(x > 0, model(x)))), rel=1e-6)
    with pytest.raises(DataError, match=MASK[np.dtype(dtype).kind]):
        check_fit(
            trainable,
            federate(Dataset("skin", x, (255 * (x > 0)).astype(dtype)), iid, devices=1, seed=0),
            TrainingPlan(),
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "glory"}, r"^task: expected classification, .* or none, found 'glory'$"),
        ({"metrics": ["mape"]}, r"^metric 'mape': is not defined for classification; leave it out$"),
        ({"metrics": "glory"}, r"^metric 'glory': expected one of "),
    ],
)
def test_wrong_task_or_metric_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message):
        export_model(classifier(), tmp_path / "m", loss="categorical_crossentropy", optimizer="sgd", **settings)
