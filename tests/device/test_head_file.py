"""Training and evaluating the head in a separate file gives the bits of the whole file."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel, Weights
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.errors import ModelError
from odt_sim.model.editing.head_file import head_file
from odt_sim.model.editing.repeated import repeated_name
from odt_sim.model.weights import Layout

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]
RATE = 0.1
SEVERAL = {"adam_head", "softmax_with_embedding"}
"""Models whose head trains several steps in a call: one with optimizer slots, one without parameters outside the head."""

KINDS = [*sorted(SEVERAL), "grouped", "frozen", "termed"]
"""Further ones have many ops for Dropout, a gradient offset, a frozen body, or terms."""


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> TrainableModel:
    found: TrainableModel = request.getfixturevalue(request.param)
    file = head_file(found)
    assert file is not None
    assert bool(file.several) == (request.param in SEVERAL)
    return found


def pair(model: TrainableModel, data: Any, **options: Any) -> tuple[Device, Device]:
    """Return two equal devices; the second one runs all signatures in the whole file."""
    one, other = (Device(model, data, pool=RuntimePool(model, edits=edits), **options) for edits in (True, False))
    return one, other


def assert_same(one: Device, other: Device) -> None:
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    for slot, same in zip(one.optimizer_state(), other.optimizer_state(), strict=True):
        np.testing.assert_array_equal(slot, same)
    assert one.calls == other.calls


def test_head_has_the_bits_of_the_whole_file(model: TrainableModel, rows: Draw, calls: Counter[str]) -> None:
    """In calls of several steps, with a partial batch."""
    data = rows(model, 9 * model.batch_size + 1)
    one, other = pair(model, data, seed=3, id=2, round=4)
    losses = one.train(1, RATE, group="head")
    file = head_file(model)
    assert file is not None
    names = [repeated_name("head_train", 8), repeated_name("head_train", 2), "head_train"]
    assert [calls[name] for name in names] == ([1, 1, 0] if file.several else [0, 0, 10])
    np.testing.assert_array_equal(losses, other.train(1, RATE, group="head"))
    assert calls["head_train"] == (10 if file.several else 20)
    assert_same(one, other)
    assert one.evaluate("train") == other.evaluate("train")


def test_training_of_head_and_body_alternates(grouped: TrainableModel, rows: Draw) -> None:
    """Each file reads the weights that the other one changed."""
    one, other = pair(grouped, rows(grouped, 20))
    for device in (one, other):
        for group in ("head", "body_norm", "head", None, "head"):
            device.train(2, RATE, group=group)
            device.train_step(next(device.batches()), RATE, group="head")
    assert_same(one, other)
    for device in (one, other):
        device.train(1, RATE, group="head")
        device.begin_again()
        device.train(1, RATE, group="body")
    assert_same(one, other)


@pytest.mark.parametrize("name", ["grouped", "frozen"])
def test_gradient_offset_of_the_head(name: str, rows: Draw, request: pytest.FixtureRequest) -> None:
    """Set in the graph for one model, added on the host for the other."""
    model = request.getfixturevalue(name)
    one, other = pair(model, rows(model, 40))
    offset = Weights(model.trainable_layout, np.linspace(-1, 1, model.trainable_layout.size, dtype=np.float32))
    for device in (one, other):
        device.set_gradient_offset(offset, 0.5)
        device.train(2, RATE, group="head")
        device.set_gradient_offset(None)
        device.train(1, RATE, group="head")
    assert_same(one, other)


@pytest.mark.parametrize("name", ["frozen", "adam_head"])
def test_parts_of_the_head_are_set_and_read_alone(name: str, rows: Draw, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    one, other = pair(model, rows(model, 10))
    of_head = model.layout.select(lambda p: p.group == "head")
    kernel, bias = (Layout((parameter,)) for parameter in of_head.parameters)
    rest = model.layout.select(lambda p: p.group != "head")
    for step in range(3):
        for device in (one, other):
            device.train(step, RATE, group="head")
            for part in (kernel, bias, kernel):
                device.restore(device.parameters(part) * 0.5)
        for layout in (kernel, of_head, rest, model.layout):
            expected = other.weights.select(layout).vector
            np.testing.assert_array_equal(one.parameters(layout).vector, expected)
        assert_same(one, other)
    with pytest.raises(ModelError, match="no parameter 'other'"):
        one.restore(Weights(Layout((replace(bias.parameters[0], name="other"),)), np.zeros(bias.size, np.float32)))


def test_devices_share_a_head(adam_head: TrainableModel, rows: Draw) -> None:
    """A device that loses its interpreter keeps weights and slots."""
    pools = [RuntimePool(adam_head), RuntimePool(adam_head, edits=False)]
    make = partial(Device, adam_head)
    fleets = [[make(rows(adam_head, 10, id), id=id, pool=pool) for id in range(3)] for pool in pools]
    for fleet in fleets:
        for id in (0, 1, 0, 2, 1):
            fleet[id].train(1, RATE, group="head")
            fleet[id].evaluate("train")
    for one, other in zip(*fleets, strict=True):
        assert_same(one, other)


def test_body_is_neither_written_nor_read_again(frozen: TrainableModel, rows: Draw) -> None:
    pool = RuntimePool(frozen)
    device = Device(frozen, rows(frozen, 10), pool=pool)
    device.train(1, RATE, group="head")
    called = list[str]()
    whole = pool.first
    whole.engine.call = lambda signature, **inputs: called.append(signature)  # type: ignore[method-assign, assignment]
    head = device.weights.select(frozen.moving)
    for _ in range(2):
        device.restore(head * 0.5)
        device.train(1, RATE, group="head")
        device.evaluate("train")
        assert not np.array_equal(device.weights.vector, device.initial.vector)
    assert not called


def test_file_holds_the_head_only(grouped: TrainableModel, adam_head: TrainableModel) -> None:
    for model in (grouped, adam_head):
        file = head_file(model)
        assert file is not None
        assert {p.group for p in file.layout.parameters} == {"head"}
        assert len(file.content) < len(model.content)
    assert {p.group for p in head_file(grouped).offset.parameters} == {"head"}
    assert 0 < len(file.slots) < len(adam_head.slots)


def test_model_without_embeddings_has_none(momentum: TrainableModel) -> None:
    assert head_file(momentum) is None


def test_damaged_file_is_one_line(frozen: TrainableModel) -> None:
    damaged = TrainableModel.from_content(frozen.content, where="app.tflite")
    object.__setattr__(damaged, "content", b"TFL3" * 9)
    with pytest.raises(ModelError, match=r"^app.tflite: damaged .tflite file \(.+\); copy or export it again$"):
        head_file(damaged)
