"""Several training steps in one call: the bits of single steps, for every kind of step."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from odt_sim import Device, TrainableModel, Weights
from odt_sim.device import runtime_pool
from odt_sim.errors import ModelError
from odt_sim.model.repeated import STEPS, repeated

Train = Callable[[Device], Any]
KINDS = ["softmax", "momentum", "adam", "regression", "small_mlp", "with_adapters"]


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Device]], Device]:
    """Return a function that makes a device whose steps run one by one."""

    def device(make: Callable[[], Device]) -> Device:
        with monkeypatch.context() as patch:
            patch.setattr(runtime_pool, "repeated", lambda model: None)
            made = make()
            _ = made.initial  # starts its interpreter
        return made

    return device


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Iterator[TrainableModel]:
    return request.getfixturevalue(request.param)


def assert_same(one: Device, other: Device) -> None:
    np.testing.assert_array_equal(one.weights.vector, other.weights.vector)
    for slot, same in zip(one.optimizer_state(), other.optimizer_state(), strict=True):
        np.testing.assert_array_equal(slot, same)
    assert one.calls == other.calls


@pytest.mark.parametrize("epochs", [1, 3])
def test_several_steps_give_the_bits_of_single_steps(
    model: TrainableModel, epochs: int, rows: Any, one_by_one: Any, calls: Any
) -> None:
    count = 7 * model.batch_size + 1  # 8 steps an epoch, the last one of one row
    x, y = rows(model, count)
    several, single = Device(model, (x, y), id=3), one_by_one(lambda: Device(model, (x, y), id=3))
    losses = several.train(epochs)
    assert calls[f"train_{STEPS}_times"] == epochs
    assert calls["train"] == 0
    np.testing.assert_array_equal(losses, single.train(epochs))
    assert calls["train"] == STEPS * epochs
    assert_same(several, single)


@pytest.mark.parametrize("name", ["softmax_with_offset", "softmax"])
def test_gradient_offsets_and_proximal_terms_stay(
    name: str, rows: Any, one_by_one: Any, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(name)
    data = rows(model, 9 * model.batch_size)
    several, single = Device(model, data), one_by_one(lambda: Device(model, data))
    offset = Weights(model.trainable_layout, np.linspace(-1, 1, model.trainable_layout.size, dtype=np.float32))
    for device in (several, single):
        device.set_gradient_offset(offset, 0.5)
    np.testing.assert_array_equal(several.train(2, 0.05), single.train(2, 0.05))
    assert_same(several, single)


def test_rest_of_the_steps_runs_one_by_one(softmax: TrainableModel, rows: Any, calls: Any) -> None:
    device = Device(softmax, rows(softmax, 11 * softmax.batch_size))
    assert len(device.train(1)) == 11
    assert (calls[f"train_{STEPS}_times"], calls["train"]) == (1, 3)


def test_steps_of_large_models_and_of_open_batches_run_one_by_one(
    any_rows: TrainableModel, digits_cnn: TrainableModel
) -> None:
    for model in (any_rows, digits_cnn):
        assert not repeated(model).several
        assert repeated(model).content is model.content


def test_file_itself_stays(softmax: TrainableModel) -> None:
    before = softmax.content[:]
    assert set(repeated(softmax).several) == {"train"}
    assert softmax.content == before
    assert f"train_{STEPS}_times" not in softmax.signatures


def test_damaged_file_is_one_line(softmax: TrainableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = TrainableModel.from_content(softmax.content, where="app.tflite")
    object.__setattr__(damaged, "content", b"TFL3" * 9)
    with pytest.raises(ModelError, match=r"^app.tflite: damaged .tflite file \(.+\); copy or export it again$"):
        repeated(damaged)
