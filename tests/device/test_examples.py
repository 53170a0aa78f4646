"""Examples: rows by index, conversions and refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, TrainableModel
from odt_sim.device.examples import Examples, checked_rows
from odt_sim.errors import DataError
from odt_sim.model.reading.flatbuffer import TensorInfo

FLOATS, LABELS = TensorInfo("x", (4, 2), "float32"), TensorInfo("y", (4,), "int32")


def test_examples_select_rows_in_any_order() -> None:
    x, y = np.arange(10).reshape(5, 2), np.arange(5)
    some = Examples(x, y, np.array([4, 1, 3]))
    assert len(some) == 3
    assert some.take()[1].tolist() == [4, 1, 3]
    assert some.take(np.array([2, 0]))[0].tolist() == [[6, 7], [8, 9]]
    everything = Examples(x, y)
    assert len(everything) == 5
    assert np.shares_memory(everything.take()[0], x)
    assert everything.take(np.array([3, 3]))[1].tolist() == [3, 3]


@pytest.mark.parametrize("index", [None, np.array([1, 0])])
def test_examples_are_read_only(index: Any) -> None:
    x, y = np.zeros((2, 2)), np.zeros(2)
    examples = Examples(x, y, index)
    for array in (examples.x, examples.y, *examples.take(), *examples.take(np.array([1]))):
        assert not array.flags.writeable
    x[:] = y[:] = 1  # the caller's own arrays stay writable


def test_integers_and_floats_are_converted() -> None:
    for given in ([0, 7, 2], np.array([0, 7, 2], np.uint8), np.array([0, 7, 2], np.int64)):
        labels = checked_rows(given, LABELS, "y")
        assert (labels.dtype, labels.tolist()) == (np.int32, [0, 7, 2])
    values = checked_rows([[0.5, 1]], FLOATS, "x")
    assert (values.dtype, values.tolist()) == (np.float32, [[0.5, 1]])


def test_booleans_are_the_integers_0_and_1() -> None:
    found = checked_rows([True, False], LABELS, "x")
    assert (found.dtype, found.tolist()) == (np.int32, [1, 0])


def test_fitting_rows_are_not_copied() -> None:
    x = np.zeros((3, 2), np.float32)
    assert checked_rows(x, FLOATS, "x") is x


@pytest.mark.parametrize(
    ("values", "tensor", "message"),
    [
        ([[1, 2]], FLOATS, "what: expected float32, found int64; convert it"),
        (np.ones((1, 2), np.uint8), FLOATS, r"found uint8; if these are pixels, scale .*'float32'\) / 255$"),
        ([[True, False]], FLOATS, "what: expected float32, found bool"),
        ([0.0, 1.0], LABELS, "what: expected int32, found float64"),
        (["a", "b"], LABELS, "what: expected int32, found <U1"),
        ([2**32, 1], LABELS, rf"what: expected int32, found the integers 1\.\.{2**32}; renumber them"),
        ([[0.0, 1.0], [2.0]], FLOATS, "what: .*inhomogeneous"),
        ([[0.0, 1.0, 2.0]], FLOATS, r"what: expected examples of shape \[2\], found \[3\]"),
        ([0.0, 1.0], FLOATS, r"what: expected examples of shape \[2\], found \[\]"),
        (0.5, FLOATS, r"what: expected examples of shape \[2\]"),
        ([[0, 0], [0, np.nan]], FLOATS, "what: example 1 contains NaN or infinity"),
        ([[0, 0], [0, 0], [1e39, 0]], FLOATS, "what: example 2 contains NaN or infinity"),
    ],
)
def test_wrong_rows_are_refused(values: Any, tensor: TensorInfo, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        checked_rows(values, tensor, "what")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("label", [-1, 10, 255])
def test_labels_out_of_range_are_refused(softmax: TrainableModel, rows: Callable[..., Any], label: int) -> None:
    x, y = rows(softmax, 5)
    y[3] = label
    with pytest.raises(DataError, match=rf"d, y: label {label} is out of range, softmax has classes 0\.\.9; renumber"):
        Examples.checked(softmax, x, y, "d")


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        ("binary", [1, 2], r"d, y: label 2 is out of range, binary has classes 0\.\.1; renumber"),
        ("binary", [[-1], [1]], "d, y: label -1 is out of range"),
        ("binary", [[1.0], [2.0]], r"d, y: 2\.0 is out of range, binary_crossentropy takes 0\.\.1; renumber"),
        ("one_hot", [0, 2], r"d, y: label 2 is out of range, one_hot has classes 0\.\.1"),
        ("one_hot", [[0.0, 1.5], [1.0, 0.0]], r"d, y: 1\.5 is out of range"),
    ],
)
def test_targets_out_of_range_are_refused(model: str, y: Any, message: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(DataError, match=message):
        Examples.checked(request.getfixturevalue(model), np.zeros((2, 6), np.float32), y, "d")


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_one_hot_targets_of_a_model_with_labels_are_refused_with_advice(softmax: TrainableModel, dtype: str) -> None:
    one_hot = np.eye(10, dtype=dtype)[:5]
    with pytest.raises(DataError) as caught:
        Examples.checked(softmax, np.zeros((5, 8, 8, 1), np.float32), one_hot, "d")
    assert str(caught.value) == (
        f"d, y: expected class numbers, int32 [], found one number per class (10), {dtype} [10]; pass class numbers, "
        "such as y.argmax(axis=1)"
    )


def test_floats_that_are_not_one_hot_keep_their_message(softmax: TrainableModel, rows: Callable[..., Any]) -> None:
    x, y = rows(softmax, 5)
    for targets in (y.astype(np.float64), y.astype(np.float64)[:, np.newaxis]):
        with pytest.raises(DataError, match="d, y: expected int32, found float64; convert it"):
            Examples.checked(softmax, x, targets, "d")


@pytest.mark.parametrize("y", [[0, 1], [[True], [False]], np.float32([[0.25], [1.0]])])
def test_binary_labels_and_probabilities_pass(y: Any, binary: TrainableModel) -> None:
    assert len(Examples.checked(binary, np.zeros((2, 6), np.float32), y, "d")) == 2


def test_unequal_lengths_are_refused(softmax: TrainableModel, rows: Callable[..., Any]) -> None:
    x, y = rows(softmax, 5)
    with pytest.raises(DataError, match="d: x has 5 examples but y has 4; give one y per x"):
        Examples.checked(softmax, x, y[:4], "d")


def test_regression_targets_have_no_range(regression: TrainableModel, rows: Callable[..., Any]) -> None:
    x, y = rows(regression, 5)
    assert len(Examples.checked(regression, x, 1000 * y, "d")) == 5


def test_labels_of_an_unknown_loss_have_no_range(foreign: Path) -> None:
    model = TrainableModel.from_content((foreign / "plain.tflite").read_bytes())
    assert len(Examples.checked(model, np.zeros((2, 6)), [7, 8], "d")) == 2


@pytest.mark.parametrize(("users", "wrong"), [([0, 5], 5), ([-1, 4], -1)])
def test_ids_that_a_model_does_not_know_are_refused(recommender: TrainableModel, users: list[int], wrong: int) -> None:
    assert recommender.vocabularies == {"user": 5, "item": 6}
    x, y = {"user": users, "item": [0, 5]}, [0, 3]
    with pytest.raises(
        DataError, match=rf"d, x, user: id {wrong} is out of range, recommender accepts ids 0\.\.4; renumber the ids"
    ):
        Examples.checked(recommender, x, y, "d")
    device = Device(recommender, ({"user": [0, 4], "item": [0, 5]}, y))
    with pytest.raises(DataError, match=rf"device 0, x, user: id {wrong} is out of range"):
        device.infer(x)


def test_integers_that_are_no_ids_have_no_vocabulary(dropout: TrainableModel, softmax: TrainableModel) -> None:
    assert dropout.vocabularies == {"": 10}
    assert softmax.vocabularies == {}
