"""Models of any number of rows: the last batch is not padded."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel
from tests.metrics.single_output import figures

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]
RATE = 0.05


@pytest.mark.parametrize("count", [1, 32, 70])
def test_last_batch_of_a_dynamic_model_is_exact(
    any_rows: TrainableModel, rows: Draw, numpy_softmax: Any, count: int
) -> None:
    x, y = rows(any_rows, count)
    device = Device(any_rows, (x, y), seed=3, id=7, round=2)
    twin = numpy_softmax.of(*device.parameters().tensors())
    order = device.random("batches", 0).permutation(count)
    expected = [twin.step(x[at], y[at], RATE) for at in np.split(order, range(32, count, 32))]
    np.testing.assert_allclose(device.train(epochs=1, learning_rate=RATE), expected, rtol=0, atol=1e-6)
    kernel, bias = device.parameters().tensors()
    np.testing.assert_allclose(kernel, twin.kernel, rtol=0, atol=1e-6)
    np.testing.assert_allclose(bias, twin.bias, rtol=0, atol=1e-6)


def test_dynamic_model_infers_any_number_of_rows(any_rows: TrainableModel, rows: Draw, numpy_softmax: Any) -> None:
    x, y = rows(any_rows, 70)
    device = Device(any_rows, (x[:5], y[:5]), test=(x, y))
    expected = numpy_softmax.of(*device.parameters().tensors()).logits(x)
    for count in (70, 1, 0, 33):
        np.testing.assert_allclose(device.infer(x[:count]), expected[:count], rtol=0, atol=1e-6)
    assert device.evaluate() == pytest.approx(figures(expected, y, any_rows.loss, any_rows.from_logits))
