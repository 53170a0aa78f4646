"""Embeddings of an untrained body are computed once, and change no result."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel, Weights
from odt_sim.data.dataset import read_only
from odt_sim.device.embedding_cache import Embedded, EmbeddingCache, digest_of_body
from odt_sim.device.examples import Examples
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.runtime import Runtime
from odt_sim.device.runtime_pool import RuntimePool

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]
RATE = 0.1


def trained_by(signature: str, device: Device, epochs: int) -> NDArray[np.float32]:
    """Train a device's weights by a signature that takes `x`, in the device's order."""
    runtime = Runtime(device.model)
    runtime.write(device.parameters())
    runtime.write_slots(device.optimizer_state())
    for batch in device.batches(TrainingPlan(epochs)):
        runtime.train([batch], [RATE], signature=signature)
    return runtime.read().vector


@pytest.mark.parametrize(("name", "signature", "group"), [("grouped", "train_head", "head"), ("frozen", "train", None)])
def test_training_on_embeddings_equals_training_the_head(
    request: pytest.FixtureRequest, rows: Draw, calls: Counter[str], name: str, signature: str, group: str | None
) -> None:
    """With Dropout before the head, and a partial batch."""
    model = request.getfixturevalue(name)
    device = Device(model, rows(model, 10), seed=2, id=5)
    expected = trained_by(signature, device, epochs=3)
    before, taken = device.parameters(), calls[signature]
    device.train(3, RATE, group=group)
    assert calls["head_train"] == 9
    assert (calls["embed"], calls[signature]) == (3, taken)
    np.testing.assert_allclose(device.parameters().vector, expected, rtol=0, atol=1e-6)
    assert not np.array_equal(device.parameters().vector, before.vector)


def test_train_batch_uses_embeddings(frozen: TrainableModel, rows: Draw) -> None:
    x, y = rows(frozen, 4)
    one, other = Device(frozen, (x, y)), Device(frozen, (x, y))
    order = one.random("batches", 0).permutation(4)
    losses = one.train(1, RATE)
    assert losses.tolist() == [other.train_batch(x[order], y[order], RATE)]
    np.testing.assert_allclose(one.parameters().vector, other.parameters().vector, rtol=0, atol=1e-7)


def test_offset_works_on_embeddings(frozen: TrainableModel, grouped: TrainableModel, rows: Draw) -> None:
    """On the host for one model, in the graph for the other; both start from the same weights."""
    data = rows(frozen, 10)
    one, other = Device(frozen, data), Device(grouped, data)
    other.restore(one.parameters())
    one.set_gradient_offset(None, 0.5)
    other.set_gradient_offset(None, 0.5)
    one.train(2, RATE)
    other.train(2, RATE, group="head")
    np.testing.assert_allclose(one.parameters().vector, other.parameters().vector, rtol=0, atol=1e-6)


def test_evaluation_on_embeddings_equals_the_whole_model(
    frozen: TrainableModel, rows: Draw, calls: Counter[str]
) -> None:
    parts = {split: rows(frozen, count, count) for split, count in (("train", 10), ("validation", 5), ("test", 9))}
    device = Device(frozen, **parts)
    for _ in range(3):
        device.train(1, RATE)
        for split, (x, y) in parts.items():
            found = device.evaluate(split)
            logits = device.infer(x).astype(np.float64)
            losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]
            assert found["loss"] == pytest.approx(losses.mean(), abs=1e-6)
            assert found["accuracy"] == (logits.argmax(axis=1) == y).mean()
    assert calls["embed"] == 3 + 2 + 3  # once for each batch of a split, though the head has changed


def test_cached_embeddings_change_no_bit(frozen: TrainableModel, rows: Draw, calls: Counter[str]) -> None:
    """Devices with a warm cache give the same bits as devices without a cache."""
    x, y = map(read_only, rows(frozen, 30))  # as a fleet's arrays are, which devices share
    pool = RuntimePool(frozen)
    found, fresh = [], []
    for round in range(3):
        for id in range(2):
            index = np.arange(15 * id, 15 * id + 10)
            place = {"id": id, "round": round}
            warm = Device(frozen, Examples(x, y, index), pool=pool, **place)
            warm.train(2, RATE)
            found += [warm.parameters().vector.tobytes(), warm.evaluate("train")]
        if round == 0:
            computed = calls["embed"]
    assert computed == calls["embed"] == 2 * 3
    for round in range(3):
        for id in range(2):
            cold = Device(frozen, (x[15 * id : 15 * id + 10], y[15 * id : 15 * id + 10]), id=id, round=round)
            cold.train(2, RATE)
            fresh += [cold.parameters().vector.tobytes(), cold.evaluate("train")]
    assert found == fresh


@pytest.mark.parametrize("group", [None, "norm", "body_norm", "restored"])
def test_changed_body_embeds_again(
    grouped: TrainableModel, rows: Draw, calls: Counter[str], tmp_path: Path, group: str | None
) -> None:
    data = rows(grouped, 10)
    device, fresh = Device(grouped, data), Device(grouped, data)
    device.train(2, RATE, group="head")
    device.evaluate("train")
    assert calls["embed"] == 3
    if group == "restored":
        device.restore(0.5 * device.parameters())
    else:
        device.train(1, RATE, group=group)
    device.save(tmp_path / "device")
    losses = device.train(1, RATE, group="head")
    assert calls["embed"] == 6
    fresh.restore(tmp_path / "device")
    np.testing.assert_array_equal(fresh.train(1, RATE, group="head"), losses)


def test_changed_head_keeps_the_embeddings(grouped: TrainableModel, rows: Draw, calls: Counter[str]) -> None:
    device = Device(grouped, rows(grouped, 10))
    device.train(1, RATE, group="head")
    device.restore(0.5 * device.parameters().select(grouped.layout.select(lambda p: p.group == "head")))
    device.restore_optimizer_state(device.optimizer_state())
    device.train(1, RATE, group="head")
    assert calls["embed"] == 3


def test_other_examples_are_embedded_again(frozen: TrainableModel, rows: Draw) -> None:
    x, y = map(read_only, rows(frozen, 12))
    pool = RuntimePool(frozen)
    for given in (Examples(x, y), Examples(x, y, np.arange(4)), Examples(x, y, np.arange(4, 8)), Examples(x.copy(), y)):
        found = Device(frozen, given, pool=pool).evaluate("train")
        assert found == Device(frozen, given).evaluate("train")


def test_digest_depends_on_the_body_only(grouped: TrainableModel) -> None:
    weights = Runtime(grouped).initial
    digests = []
    for name in grouped.layout.names:
        other = Weights(weights.layout, weights.vector.copy())
        other[name][...] += 1
        digests.append(digest_of_body(other))
    assert [digest == digest_of_body(weights) for digest in digests] == [p.group == "head" for p in grouped.parameters]
    assert len(set(digests)) == len(digests) - 1


# --- the cache -----------------------------------------------------------------------------------------------------


class RecordingCache:
    """A cache of 100-byte embeddings that records misses."""

    def __init__(self, limit: int) -> None:
        self.cache, self.computed = EmbeddingCache(limit), []
        self.examples = Examples(np.zeros((25, 1), np.float32), np.zeros(25, np.int32))

    def __call__(self, device: int, body: str = "a", size: int = 25) -> None:
        def embed() -> NDArray[np.float32]:
            self.computed.append(device)
            return np.full((size, 1), device, np.float32)

        found = self.cache.get(device, "train", self.examples, body, embed)
        assert (found == device).all()


def test_least_recently_used_embeddings_are_evicted() -> None:
    ask = RecordingCache(limit=300)
    for device in (0, 1, 2, 0, 3, 0, 2, 1):
        ask(device)
    assert ask.computed == [0, 1, 2, 3, 1]
    ask(9, size=75)
    ask(1)
    assert ask.computed == [0, 1, 2, 3, 1, 9, 1]


def test_cache_takes_what_another_one_computed() -> None:
    """A copy has the entries at the time of copying, not later ones."""
    ask, other, computed = RecordingCache(limit=300), RecordingCache(limit=300), list[Embedded]()
    ask(0)
    other.cache, other.examples = ask.cache.copy(), ask.examples
    ask.cache.on_computed = computed.append
    for device in (1, 0, 2, 1):
        ask(device)
    other.cache.add(computed[0], other.examples.x)
    for device in (0, 1, 2):
        other(device)
    assert ([each.device for each in computed], other.computed) == ([1, 2], [2])


def test_cache_keeps_one_body_per_device() -> None:
    ask = RecordingCache(limit=100)
    for body in ("a", "a", "b", "b", "a"):
        ask(0, body)
    assert ask.computed == [0, 0, 0]


def test_too_large_embeddings_are_not_cached() -> None:
    ask = RecordingCache(limit=100)
    ask(0)
    ask(1, size=26)
    ask(1, size=26)
    ask(0)
    assert ask.computed == [0, 1, 1]
