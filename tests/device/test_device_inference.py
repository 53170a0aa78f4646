"""Inference and evaluation against numpy, for any number of rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel
from odt_sim.errors import DataError

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 32, 50])
def test_inference_on_any_number_of_rows(softmax: TrainableModel, rows: Draw, numpy_softmax: Any, count: int) -> None:
    x, _ = rows(softmax, count)
    device = Device(softmax, rows(softmax, 3))
    device.train(3, 0.1)
    twin = numpy_softmax.of(*device.parameters().tensors())
    logits = device.infer(x)
    assert (logits.shape, logits.dtype) == ((count, 10), np.float32)
    np.testing.assert_allclose(logits, twin.logits(x), rtol=0, atol=1e-5)


def test_batches_are_inferred_as_their_rows(softmax: TrainableModel, rows: Draw) -> None:
    """Two batches of 16, the second of 4 examples and padding."""
    device = Device(softmax, rows(softmax, 20))
    for batch in device.batches():
        found = device.infer_batch(batch)
        assert len(found) == 16
        np.testing.assert_array_equal(found, device.infer(batch.x))
    assert device.calls.infer == 4


@pytest.mark.parametrize("name", ["plain", "dynamic"])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 70])
def test_foreign_model_infers_any_number_of_rows(foreign: Path, numpy_softmax: Any, name: str, count: int) -> None:
    x = np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32)
    device = Device(TrainableModel.load(foreign / f"{name}.tflite"), (np.ones((1, 6)), [0]))
    twin = numpy_softmax.of(*device.parameters().tensors())
    scores = device.infer(x)
    assert scores.shape == (count, 3)
    np.testing.assert_allclose(scores, twin.logits(x), rtol=0, atol=1e-6)


def test_outputs_do_not_depend_on_the_batch(digits_cnn: TrainableModel, rows: Draw) -> None:
    x, _ = rows(digits_cnn, 20)
    device = Device(digits_cnn, rows(digits_cnn, 3))
    together = device.infer(x)
    alone = np.concatenate([device.infer(x[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-6)


def test_wrong_rows_are_refused(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 3), id=2)
    with pytest.raises(DataError, match=r"device 2, x: expected examples of shape \[8, 8, 1\], found \[8, 8\]"):
        device.infer(np.zeros((3, 8, 8), np.float32))
    with pytest.raises(DataError, match="device 2, x: expected float32, found uint8"):
        device.infer(np.zeros((3, 8, 8, 1), np.uint8))


def test_evaluation_on_each_split(softmax: TrainableModel, rows: Draw, numpy_softmax: Any) -> None:
    splits = {"train": rows(softmax, 30, 0), "validation": rows(softmax, 7, 1), "test": rows(softmax, 17, 2)}
    device = Device(softmax, splits["train"], splits["validation"], splits["test"])
    device.train(5, 0.1)
    twin = numpy_softmax.of(*device.parameters().tensors())
    assert device.evaluate() == device.evaluate("test")
    for split, (x, y) in splits.items():
        figures = device.evaluate(split)
        assert figures["examples"] == len(y)
        assert figures["accuracy"] == (twin.logits(x).argmax(axis=1) == y).mean()
        assert figures["loss"] == pytest.approx(twin.losses(x, y).mean(), abs=1e-5)
        assert device.loss(split) == figures["loss"]


def test_evaluation_of_a_regression(regression: TrainableModel, rows: Draw) -> None:
    x, y = rows(regression, 9)
    device = Device(regression, (x, y), test=(x, y))
    kernel, bias = device.parameters().tensors()
    error = x @ kernel + bias - y
    figures = device.evaluate()
    targets = {f"mae_{target}" for target in range(y.shape[1])}
    assert set(figures) == {"mse", "mae", "loss", "examples", "r2", *targets}
    assert figures["r2"] == pytest.approx(1 - ((error**2).sum(axis=0) / ((y - y.mean(axis=0)) ** 2).sum(axis=0)).mean())
    assert figures["mse"] == figures["loss"] == pytest.approx((error**2).mean(), rel=1e-6)
    assert figures["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-6)


def test_evaluation_changes_nothing(momentum: TrainableModel, rows: Draw) -> None:
    data = rows(momentum, 10)
    quiet, asked = Device(momentum, data, test=data), Device(momentum, data, test=data)
    for _ in range(3):
        quiet.train(1, 0.1)
        asked.evaluate()
        asked.train(1, 0.1)
        asked.infer(data[0])
    np.testing.assert_array_equal(quiet.parameters().vector, asked.parameters().vector)


def test_missing_splits_are_refused(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 3), id=6)
    with pytest.raises(DataError, match="device 6: has no test examples; provide some"):
        device.evaluate()
    with pytest.raises(DataError, match="device 6: has no validation examples"):
        device.loss("validation")
    with pytest.raises(DataError, match="device 6: unknown split 'holdout'; expected one of test, validation, train"):
        device.evaluate("holdout")
    with pytest.raises(
        DataError, match=r"device 6: expected the name of a split, one of test, .*, found tuple; for other"
    ):
        device.evaluate(rows(softmax, 3))  # type: ignore[arg-type]
