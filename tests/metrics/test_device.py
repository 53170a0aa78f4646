"""The metrics of one device, against known answers."""

import tracemalloc
from math import log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from odt_sim.errors import ModelError
from odt_sim.metrics.device import model_figures, output_figures
from odt_sim.metrics.losses import example_losses, log_softmax
from odt_sim.model.contract.manifest import Output
from tests.metrics.single_output import figures

SPARSE, ONE_HOT, MSE = "sparse_categorical_crossentropy", "categorical_crossentropy", "mean_squared_error"
LOGITS = np.log(np.array([[1, 2, 1], [8, 1, 1]], np.float32))
PROBABILITIES = np.array([[0.25, 0.5, 0.25], [0.8, 0.1, 0.1]], np.float32)
LABELS = np.array([1, 2], np.int32)  # of probability 1/2 and 1/10: one right, one wrong
MORE = {"balanced_accuracy": 0.5, "auc": 0.5}  # scores separate class 1 from 2, not class 2 from 1
KNOWN = [-log(1 / 2), -log(1 / 10)]


@pytest.mark.parametrize(("outputs", "from_logits"), [(LOGITS, True), (PROBABILITIES, False)])
@pytest.mark.parametrize(
    ("y", "loss"),
    [
        (LABELS, SPARSE),
        (LABELS[:, np.newaxis], SPARSE),
        (np.eye(3, dtype=np.float32)[LABELS], ONE_HOT),
        (np.eye(3, dtype=np.int32)[LABELS], ONE_HOT),
        (LABELS, ONE_HOT),
    ],
)
def test_cross_entropy(outputs: NDArray[Any], from_logits: bool, y: NDArray[Any], loss: str) -> None:
    losses = example_losses(outputs, y, loss, from_logits)
    assert losses.dtype == np.float64
    np.testing.assert_allclose(losses, KNOWN, rtol=1e-6)
    found = figures(outputs, y, loss, from_logits)
    assert found == {"accuracy": 0.5, "loss": pytest.approx(sum(KNOWN) / 2), "examples": 2, **MORE}


def test_cross_entropy_of_sequences_is_the_mean_over_positions() -> None:
    outputs, y = LOGITS[np.newaxis], LABELS[np.newaxis]
    np.testing.assert_allclose(example_losses(outputs, y, SPARSE, True), [sum(KNOWN) / 2], rtol=1e-6)
    known = {"accuracy": 0.5, "loss": pytest.approx(sum(KNOWN) / 2), "examples": 1, **MORE}
    assert figures(outputs, y, SPARSE, True) == known | {"perplexity": pytest.approx(20**0.5)}
    hot = np.eye(3, dtype=np.float32)[y]
    np.testing.assert_allclose(example_losses(outputs, hot, ONE_HOT, True), [sum(KNOWN) / 2], rtol=1e-6)


def test_soft_targets() -> None:
    y = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]], np.float32)
    np.testing.assert_allclose(
        example_losses(PROBABILITIES, y, ONE_HOT, False), [(log(4) + log(2)) / 2, log(10)], rtol=1e-6
    )


def test_probability_of_zero_has_a_finite_loss() -> None:
    found = figures(np.array([[1, 0]], np.float32), np.array([1]), SPARSE, False)
    assert found["loss"] == pytest.approx(-log(1e-7))


def test_large_logits_do_not_overflow() -> None:
    outputs = np.array([[1000, 0], [-1000, 3e38]], np.float32)
    np.testing.assert_allclose(example_losses(outputs, np.array([0, 0]), SPARSE, True)[0], 0)
    np.testing.assert_allclose(example_losses(outputs, np.array([1, 0]), SPARSE, True)[0], 1000)
    assert np.isfinite(example_losses(outputs, np.array([1, 0]), SPARSE, True)).all()


def test_mean_squared_error() -> None:
    outputs = np.array([[1, 2], [3, 4]], np.float32)
    y = np.array([[1, 4], [0, 3]], np.float32)  # errors 0, -2, 3, 1
    np.testing.assert_allclose(example_losses(outputs, y, MSE, False), [2, 5])
    each = {"mae_0": 1.5, "mae_1": 1.5}
    assert figures(outputs, y, MSE, False) == {"mse": 3.5, "mae": 1.5, "loss": 3.5, "examples": 2, "r2": -13.0, **each}


def test_mean_squared_error_of_one_value_per_example() -> None:
    outputs, y = np.array([[1], [5]], np.float32), np.array([0, 2], np.float32)
    assert figures(outputs, y, MSE, False) == {"mse": 5.0, "mae": 2.0, "loss": 5.0, "examples": 2, "r2": -4.0}


def test_nan_outputs_are_wrong_without_a_warning() -> None:
    outputs = np.array([[np.nan, np.nan], [np.inf, np.inf], [3, 1]], np.float32)
    found = figures(outputs, np.array([0, 1, 0]), SPARSE, True)
    assert np.isnan(found["loss"])
    assert found["accuracy"] == pytest.approx(1 / 3)


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(-50, 50, width=32)), st.floats(-100, 100, width=32))
def test_softmax_sums_to_one_and_ignores_a_shift(logits: NDArray[np.float32], shift: float) -> None:
    logarithms = log_softmax(logits)
    np.testing.assert_allclose(np.exp(logarithms).sum(axis=1), 1)
    np.testing.assert_allclose(log_softmax(logits.astype(np.float64) + shift), logarithms, atol=1e-10)


def test_metrics_of_a_language_model_need_less_memory_than_its_outputs() -> None:
    random = np.random.default_rng(0)
    logits = random.standard_normal((250, 20, 2000), np.float32)
    labels = random.integers(0, 2000, (250, 20))
    tracemalloc.start()
    try:
        figures(logits, labels, SPARSE, True)
        assert tracemalloc.get_traced_memory()[1] < logits.nbytes
    finally:
        tracemalloc.stop()


def test_unknown_loss() -> None:
    with pytest.raises(ModelError, match=r"its loss is unknown; pass it: TrainableModel\.load\(path, loss=\.\.\.\)"):
        figures(LOGITS, LABELS, None, True)


def test_undefined_figures_are_absent() -> None:
    assert set(figures(LOGITS, np.array([1, 1]), SPARSE, True)) == {"accuracy", "loss", "examples", "balanced_accuracy"}
    equal = np.ones((2, 1), np.float32)
    assert set(figures(2 * equal, equal, MSE, False)) == {"mse", "mae", "loss", "examples"}


def test_device_without_a_position_that_counts_has_no_loss() -> None:
    """With a loss of 0, it would rank as the best device."""
    none, output = np.zeros((1, 2), bool), Output("tag", SPARSE, True, task="classification")
    found = output_figures(output, LOGITS[np.newaxis], LABELS[np.newaxis], mask=none)
    assert found == {"examples": 1}
    value = Output("size", MSE, task="regression", loss_weight=0.5)
    model: Any = SimpleNamespace(outputs=(output, value))
    answers = {"tag": LOGITS[np.newaxis], "size": np.float32([[3]])}
    targets = {"tag": LABELS[np.newaxis], "size": np.float32([[1]])}
    figures = model_figures(model, answers, targets, {}, {"tag": none})
    assert figures == {"loss": 2.0, "examples": 1, "mse_size": 4.0, "mae_size": 2.0, "loss_size": 4.0}
    assert model_figures(model, answers, targets, {}, {"tag": none, "size": np.zeros((1, 1))}) == {"examples": 1}


def test_logits_are_ranked_as_probabilities() -> None:
    """A shift of one example's logits changes neither probabilities nor AUC."""
    outputs, y = np.array([[2, 1], [1, 2], [3, 0]], np.float32), np.array([0, 1, 0])
    shifted = outputs + np.array([[9], [-5], [0]], np.float32)
    assert figures(outputs, y, SPARSE, True)["auc"] == figures(shifted, y, SPARSE, True)["auc"] == 1.0


def test_binary_cross_entropy_has_one_score() -> None:
    outputs, y = np.array([[-2], [-1], [1], [-3]], np.float32), np.array([0, 1, 1, 0], np.float32)
    found = figures(outputs, y, "binary_crossentropy", True)
    assert (found["accuracy"], found["balanced_accuracy"], found["auc"]) == (0.75, 0.75, 1.0)
