"""Several training steps per call give the bits of single steps, for every kind of step."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odt_sim import Device, TrainableModel, TrainingPlan, Weights
from odt_sim.device import runtime_pool
from odt_sim.device.batches import batches, stacked_batches
from odt_sim.device.examples import Examples
from odt_sim.errors import ModelError
from odt_sim.model.editing.repeated import STEPS, own_file, repeated, repeated_name

KINDS = ["softmax", "momentum", "adam", "regression", "small_mlp", "with_adapters"]


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Device]], Device]:
    """Return a function that creates a device whose steps run one by one."""

    def device(make: Callable[[], Device]) -> Device:
        with monkeypatch.context() as patch:
            patch.setattr(runtime_pool, "repeated", lambda model: own_file(model))
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


def expected_calls(steps: int) -> Counter[str]:
    """Return the expected calls of a training, each with as many steps as possible."""
    expected = Counter[str]()
    for size in STEPS:
        expected[repeated_name("train", size)], steps = divmod(steps, size)
    expected["train"] = steps
    return expected


@pytest.mark.parametrize("epochs", [1, 3])
def test_several_steps_give_the_bits_of_single_steps(
    model: TrainableModel, epochs: int, rows: Any, one_by_one: Any, calls: Any
) -> None:
    count = 7 * model.batch_size + 1  # 8 steps an epoch, the last one of one row
    x, y = rows(model, count)
    several, single = Device(model, (x, y), id=3), one_by_one(lambda: Device(model, (x, y), id=3))
    losses = several.train(epochs)
    expected = expected_calls(8 * epochs)
    assert {name: calls[name] for name in expected} == expected
    np.testing.assert_array_equal(losses, single.train(epochs))
    assert calls["train"] == 8 * epochs + expected["train"]
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


@pytest.mark.parametrize(("steps", "epochs"), [(11, 1), (1, 40), (3, 17)])
def test_each_call_takes_as_many_steps_as_possible(
    steps: int, epochs: int, softmax: TrainableModel, rows: Any, calls: Any
) -> None:
    """Calls also extend across the ends of epochs."""
    device = Device(softmax, rows(softmax, steps * softmax.batch_size))
    assert len(device.train(epochs)) == steps * epochs
    expected = expected_calls(steps * epochs)
    assert {name: calls[name] for name in expected} == expected


@given(
    examples=st.integers(1, 40),
    plan=st.builds(TrainingPlan, epochs=st.integers(0, 20)) | st.builds(TrainingPlan, steps=st.integers(0, 60)),
    weights=st.booleans(),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_training_has_the_bits_of_single_steps(
    small_mlp: TrainableModel, rows: Any, one_by_one: Any, examples: int, plan: TrainingPlan, weights: bool
) -> None:
    x, y = rows(small_mlp, 3 * examples)
    own = Examples(x, y, np.arange(examples)[::-1] * 2)
    inputs = {"sample_weight": np.linspace(0, 2, examples, dtype=np.float32)} if weights else None
    several, single = (Device(small_mlp, own, plan=plan), one_by_one(lambda: Device(small_mlp, own, plan=plan)))
    for _ in range(2):
        np.testing.assert_array_equal(several.train(inputs=inputs), single.train(inputs=inputs))
    assert_same(several, single)


def test_first_rows_fill_a_batch_without_weights(foreign: Path) -> None:
    """As in `batches`, where a model takes no `sample_weight`."""
    for name in ("plain", "weighted"):
        model = TrainableModel.load(foreign / f"{name}.tflite")
        x, y = np.arange(60, dtype=np.float32).reshape(10, 6), np.arange(10, dtype=np.int32) % 3
        orders = [np.random.default_rng(i).permutation(10)[:count] for i, count in enumerate([10, 10, 5, 1])]
        stacks = list(stacked_batches(model, Examples(x, y), orders, None, (2, 1)))
        expected = [batch for order in orders for batch in batches(model, x[order], y[order])]
        assert [len(stack.y) for stack in stacks] == [2] * (len(expected) // 2) + [1] * (len(expected) % 2)
        assert {len(stack.x) for stack in stacks} <= {2 * model.batch_size, model.batch_size, 10}
        taken = {"x": [stack.x[stack.positions] for stack in stacks]}
        for field in ("x", "y", "sample_weight"):
            found = np.concatenate(taken.get(field) or [getattr(stack, field) for stack in stacks])
            np.testing.assert_array_equal(found, np.stack([getattr(batch, field) for batch in expected]))


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
    assert repeated_name("train", STEPS[0]) not in softmax.signatures


def test_damaged_file_is_one_line(softmax: TrainableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = TrainableModel.from_content(softmax.content, where="app.tflite")
    object.__setattr__(damaged, "content", b"TFL3" * 9)
    with pytest.raises(ModelError, match=r"^app.tflite: damaged .tflite file \(.+\); copy or export it again$"):
        repeated(damaged)
