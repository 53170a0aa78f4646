"""Counts of model calls, which do not depend on caches."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel
from odt_sim.device.runtime_pool import RuntimePool

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]


def counts(device: Device) -> tuple[int, int]:
    return device.calls.train, device.calls.infer


def test_calls_equal_those_of_the_interpreter(momentum: TrainableModel, rows: Draw, calls: Counter[str]) -> None:
    one_by_one = RuntimePool(momentum, edits=False)
    device = Device(momentum, rows(momentum, 10), test=rows(momentum, 5), pool=one_by_one)
    assert counts(device) == (0, 0)
    device.train(epochs=2, learning_rate=0.05)
    device.train_batch(*rows(momentum, 2), learning_rate=0.05)
    assert counts(device) == (2 * 3 + 1, 0)
    device.evaluate()
    device.infer(rows(momentum, 9)[0])
    assert counts(device) == (7, 2 + 3)
    assert counts(device) == (calls["train"], calls["infer"])
    device.infer(rows(momentum, 9)[0][:0])
    assert counts(device) == (7, 5)
    assert device.calls.by_signature == {"train": 7, "infer": 5}
    assert device.calls.rows == {"train": 2 * 10 + 2, "infer": 5 + 9}


def test_calls_are_batches_of_the_models_size(any_rows: TrainableModel, rows: Draw) -> None:
    device = Device(any_rows, rows(any_rows, 40), test=rows(any_rows, 65))
    assert any_rows.batch_size == 32
    device.train(epochs=1, learning_rate=0.05)
    device.evaluate()
    assert counts(device) == (2, 3)


def test_split_is_embedded_once_per_body(grouped: TrainableModel, rows: Draw, calls: Counter[str]) -> None:
    device = Device(grouped, rows(grouped, 10), rows(grouped, 5))
    device.train(3, 0.05, group="head")
    assert counts(device) == (9, 3)
    device.train(1, 0.05, group="head")
    assert counts(device) == (12, 3)
    device.evaluate("validation")
    assert counts(device) == (12, 3 + 2 + 2)
    device.evaluate("validation")
    assert counts(device) == (12, 7 + 2)
    assert counts(device) == (calls["head_train"], calls["embed"] + calls["head_infer"])
    device.train(1, 0.05)  # changes the body
    device.evaluate("validation")
    assert counts(device) == (15, 9 + 2 + 2)


@pytest.mark.parametrize("name", ["frozen", "grouped"])
def test_cached_embeddings_count_again_in_a_new_round(
    request: pytest.FixtureRequest, rows: Draw, calls: Counter[str], name: str
) -> None:
    model = request.getfixturevalue(name)
    pool, train = RuntimePool(model), rows(model, 10)
    embedded, found = [], []
    first = Device(model, train)  # the next device shares its arrays
    for _ in range(2):
        device = Device(model, first.train_examples, pool=pool)
        device.train(1, 0.05, group="head")
        embedded.append(calls["embed"])
        found.append(counts(device))
        device.release()
    assert embedded == [3, 3]
    assert found == [(3, 3), (3, 3)]
