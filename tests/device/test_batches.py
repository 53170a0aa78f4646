"""Batches in order, with an exact or padded last batch."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim import TrainableModel
from odt_sim.device.batches import MOST_BYTES, Batch, batches, padded, prepared

X, Y = np.arange(1, 61, dtype=np.float32).reshape(10, 6), np.arange(10, dtype=np.int32) % 3


@pytest.mark.parametrize("name", ["plain", "weighted", "dynamic"])
def test_full_batches_are_views(foreign: Path, name: str) -> None:
    model = TrainableModel.load(foreign / f"{name}.tflite")
    size = model.batch_size
    x, y = np.zeros((2 * size, 6), np.float32), np.arange(2 * size, dtype=np.int32)
    found = list(batches(model, x, y))
    assert [batch.y.tolist() for batch in found] == [y[:size].tolist(), y[size:].tolist()]
    assert all(np.shares_memory(batch.x, x) for batch in found)
    assert all(batch.sample_weight.tolist() == [1.0] * size for batch in found)


def test_padding_has_weight_0_for_a_weighted_model(foreign: Path) -> None:
    *_, last = batches(TrainableModel.load(foreign / "weighted.tflite"), X, Y)
    np.testing.assert_array_equal(last.x, X[[8, 9, 8, 8]])
    assert last.y.tolist() == [2, 0, 2, 2]
    assert last.sample_weight.tolist() == [2, 2, 0, 0]
    assert last.sample_weight.dtype == np.float32
    assert last.examples == 2


def test_first_rows_are_repeated_without_weights(foreign: Path) -> None:
    model = TrainableModel.load(foreign / "plain.tflite")
    *_, last = batches(model, X, Y)
    np.testing.assert_array_equal(last.x, X[[8, 9, 0, 1]])
    assert last.y.tolist() == [2, 0, 0, 1]
    assert last.sample_weight.tolist() == [1, 1, 1, 1]
    assert last.examples == 2
    (only,) = batches(model, X[:3], Y[:3])
    assert only.y.tolist() == [0, 1, 2, 0]
    (one,) = batches(model, X[1:2], Y[1:2])
    assert one.y.tolist() == [1, 1, 1, 1]


def test_dynamic_batches_are_not_padded(foreign: Path) -> None:
    (only,) = batches(TrainableModel.load(foreign / "dynamic.tflite"), X, Y)
    np.testing.assert_array_equal(only.x, X)
    assert only.sample_weight.tolist() == [1] * 10
    assert only.examples == 10


@pytest.mark.parametrize("name", ["plain", "weighted", "dynamic"])
def test_batches_are_read_only(foreign: Path, name: str) -> None:
    for batch in batches(TrainableModel.load(foreign / f"{name}.tflite"), X, Y):
        assert not any(array.flags.writeable for array in (batch.x, batch.y, batch.sample_weight))


@given(st.integers(0, 70))
def test_weighted_batches_hold_each_row_once(softmax: TrainableModel, count: int) -> None:
    x, y = np.zeros((count, 8, 8, 1), np.float32), np.arange(count, dtype=np.int32)
    found = list(batches(softmax, x, y))
    assert len(found) == -(-count // 16)
    assert sum(batch.examples for batch in found) == count
    real = [label for batch in found for label, weight in zip(batch.y, batch.sample_weight, strict=True) if weight]
    assert real == list(range(count))
    assert all(batch.x.shape == (16, 8, 8, 1) for batch in found)
    assert all(batch.sample_weight.sum() == pytest.approx(16) for batch in found)


def test_padding_repeats_the_first_row() -> None:
    rows = np.array([[1, 2]], np.int32)
    assert padded(rows, 1) is rows
    assert padded(rows, 3).tolist() == [[1, 2]] * 3
    assert padded(rows, 3).dtype == np.int32


@pytest.mark.parametrize(
    ("size", "groups"), [(24, [8, 2]), (MOST_BYTES // 3, [3, 3, 3, 1]), (2 * MOST_BYTES, [1] * 10)]
)
def test_large_batches_are_prepared_one_by_one(size: int, groups: list[int]) -> None:
    one = Batch(np.empty((1, size), np.int8), Y[:1], np.ones(1, np.float32), 1)
    assert [len(some) for some in prepared(one for _ in range(10))] == groups
