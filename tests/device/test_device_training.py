"""Training on a device: known answers, batch orders and settings."""

import gc
import weakref
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from orders import orders

from odt_sim import Device, TrainableModel, TrainingPlan, Weights
from odt_sim.data import Dataset
from odt_sim.device.examples import Examples
from odt_sim.device.runtime import Runtime
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.errors import ConfigurationError, DataError, InvocationError, ModelError

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]
RATE = 0.05


# --- the known answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 16, 17, 40])
def test_training_is_gradient_descent_on_the_real_rows(
    softmax: TrainableModel, rows: Draw, numpy_softmax: Any, count: int
) -> None:
    x, y = rows(softmax, count)
    device = Device(softmax, (x, y), seed=3, id=7, round=2)
    twin = numpy_softmax.of(*device.parameters().tensors())
    losses = device.train(epochs=2, learning_rate=RATE)
    expected = []
    for at in islice(orders(3, 7, 2, count), 2):
        expected += [twin.step(x[b], y[b], RATE) for b in (at[start : start + 16] for start in range(0, count, 16))]
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-6)
    kernel, bias = device.parameters().tensors()
    np.testing.assert_allclose(kernel, twin.kernel, rtol=0, atol=1e-6)
    np.testing.assert_allclose(bias, twin.bias, rtol=0, atol=1e-6)


def test_device_is_freed_without_a_garbage_collection(momentum: TrainableModel, rows: Draw) -> None:
    """Otherwise the weights of several devices would stay in memory until a collection."""
    gc.disable()
    try:
        device = Device(momentum, rows(momentum, 10), test=rows(momentum, 3), pool=RuntimePool(momentum, edits=False))
        device.train(learning_rate=RATE)
        device.evaluate()
        alive = weakref.ref(device)
        del device
        assert alive() is None
    finally:
        gc.enable()


def test_failed_training_is_not_counted(momentum: TrainableModel, rows: Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(momentum, rows(momentum, 10), pool=RuntimePool(momentum, edits=False))
    batch = next(device.batches())
    device.train(learning_rate=RATE)
    counted = device.calls.train

    def failing(*given: Any) -> Any:
        raise InvocationError("out of memory")

    monkeypatch.setattr(Runtime, "train", failing)
    for train in (device.train, lambda: device.train_step(batch)):
        with pytest.raises(InvocationError):
            train()
    assert device.calls.train == device.calls.by_signature["train"] == counted == 3


@pytest.mark.parametrize("edits", [True, False])
def test_replaced_examples_are_trained_in_their_own_order(edits: bool, momentum: TrainableModel, rows: Draw) -> None:
    given = zip((10, 13), (0, 1), strict=True)
    device, expected = (
        Device(momentum, rows(momentum, size, seed), pool=RuntimePool(momentum, edits=edits)) for size, seed in given
    )
    device.train_examples = expected.train_examples
    np.testing.assert_array_equal(device.train(learning_rate=RATE), expected.train(learning_rate=RATE))


@given(count=st.integers(1, 16), seed=st.integers(0, 9))
@settings(max_examples=20)
def test_train_batch_is_one_step_on_the_given_rows(
    softmax: TrainableModel, rows: Draw, numpy_softmax: Any, count: int, seed: int
) -> None:
    x, y = rows(softmax, count, seed)
    device = Device(softmax, (x, y))
    twin = numpy_softmax.of(*device.parameters().tensors())
    assert device.train_batch(x, y, learning_rate=RATE) == pytest.approx(twin.step(x, y, RATE), abs=1e-6)
    np.testing.assert_allclose(device.parameters()["softmax_regression/classifier/kernel"], twin.kernel, atol=1e-6)


@pytest.mark.parametrize("name", ["adam_with_offset", "grouped"])
def test_begin_again_repeats_the_first_epochs(name: str, rows: Draw, request: pytest.FixtureRequest) -> None:
    """Batches, masks and slots start over; the weights stay."""
    model: TrainableModel = request.getfixturevalue(name)
    device, fresh = (Device(model, rows(model, 10), seed=3, id=7, round=2) for _ in range(2))
    device.train(2, RATE)
    device.set_gradient_offset(None, 0.5)
    trained = device.parameters()
    device.begin_again()
    np.testing.assert_array_equal(device.parameters().vector, trained.vector)
    fresh.restore(trained)
    np.testing.assert_array_equal(device.train(2, RATE), fresh.train(2, RATE))
    np.testing.assert_array_equal(device.parameters().vector, fresh.parameters().vector)
    for slot, own in zip(device.optimizer_state(), fresh.optimizer_state(), strict=True):
        np.testing.assert_array_equal(slot, own)


@pytest.mark.parametrize(("name", "group"), [("softmax", None), ("grouped", "head"), ("grouped", "body_norm")])
def test_steps_on_batches_equal_train(name: str, group: str | None, rows: Draw, request: pytest.FixtureRequest) -> None:
    """Bit for bit, with a partial batch and masks."""
    model: TrainableModel = request.getfixturevalue(name)
    whole, by_step = (Device(model, rows(model, 10), seed=3, id=7, round=2) for _ in range(2))
    losses = [by_step.train_step(batch, RATE, group) for batch in by_step.batches(TrainingPlan(2))]
    np.testing.assert_array_equal(whole.train(2, RATE, group), np.array(losses, np.float32))
    np.testing.assert_array_equal(whole.parameters().vector, by_step.parameters().vector)


def test_batch_order_depends_on_the_purpose(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 40), seed=3)
    first, other = ([batch.x for batch in device.batches(purpose=purpose)] for purpose in ("batches", "second"))
    at = next(orders(3, 0, 0, 40, "second"))
    np.testing.assert_array_equal(other[0], device.train_examples.x[at[:16]])
    assert not np.array_equal(first[0], other[0])


def test_momentum_persists_between_steps(momentum: TrainableModel, rows: Draw) -> None:
    """Two steps on equal rows: `v1 = -r g1`, `v2 = 0.9 v1 - r g2`."""
    x, y = rows(momentum, 4)
    device = Device(momentum, (x, y))
    start = device.parameters()
    device.train_batch(x, y, RATE)
    first = device.parameters()
    device.train_batch(x, y, RATE)
    second = device.parameters()
    fresh = Device(momentum, (x, y))
    fresh.restore(first)
    fresh.train_batch(x, y, RATE)
    plain_step = fresh.parameters() - first
    expected = first + (first - start) * 0.9 + plain_step
    np.testing.assert_allclose(second.vector, expected.vector, rtol=0, atol=1e-6)


def test_regression_step_is_exact(regression: TrainableModel, rows: Draw) -> None:
    """The gradient of linear regression is `2 x'(xw + b - y) / (rows * outputs)`."""
    x, y = rows(regression, 3)
    device = Device(regression, (x, y))
    kernel, bias = (tensor.astype(np.float64) for tensor in device.parameters().tensors())
    error = x @ kernel + bias - y
    loss = device.train_batch(x, y, learning_rate=0.1)
    assert loss == pytest.approx((error**2).mean(), abs=1e-6)
    after = device.parameters().tensors()
    np.testing.assert_allclose(after[0], kernel - 0.1 * 2 * x.T @ error / error.size, rtol=0, atol=1e-6)
    np.testing.assert_allclose(after[1], bias - 0.1 * 2 * error.sum(axis=0) / error.size, rtol=0, atol=1e-6)


def test_cnn_learns_two_rows(digits_cnn: TrainableModel, rows: Draw) -> None:
    x, _ = rows(digits_cnn, 2)
    device = Device(digits_cnn, (x, [3, 8]), test=(x, [3, 8]))
    losses = device.train(epochs=60, learning_rate=0.1)
    assert losses[-1] < 0.05 < 1.5 < losses[0]
    assert device.evaluate()["accuracy"] == 1


# --- steps and order -----------------------------------------------------------------------------------------------


@given(count=st.integers(1, 50), epochs=st.integers(0, 3))
@settings(max_examples=15)
def test_one_loss_per_step(softmax: TrainableModel, rows: Draw, count: int, epochs: int) -> None:
    losses = Device(softmax, rows(softmax, count)).train(epochs=epochs, learning_rate=RATE)
    assert losses.shape == (epochs * -(-count // 16),)
    assert losses.dtype == np.float32


def test_equal_seeds_give_equal_bits(digits_cnn: TrainableModel, rows: Draw) -> None:
    data = rows(digits_cnn, 40)
    one, other = (Device(digits_cnn, data, seed=5, id=2, round=9) for _ in range(2))
    np.testing.assert_array_equal(one.train(2, RATE), other.train(2, RATE))
    np.testing.assert_array_equal(one.parameters().vector, other.parameters().vector)


def test_order_depends_on_seed_id_round_and_epoch(softmax: TrainableModel, rows: Draw) -> None:
    data = rows(softmax, 40)
    places = [{}, {"seed": 1}, {"id": 1}, {"round": 1}, {"seed": 1, "id": 1}]
    runs = [Device(softmax, data, **place).train(1, RATE).tobytes() for place in places]
    device = Device(softmax, data)
    start = device.parameters()
    device.train(1, RATE)
    device.restore(start)
    runs.append(device.train(1, RATE).tobytes())  # the second epoch, from the same weights
    assert len(set(runs)) == len(runs)


def test_epochs_may_be_split_over_calls(momentum: TrainableModel, rows: Draw) -> None:
    data = rows(momentum, 10)
    one, other = Device(momentum, data), Device(momentum, data)
    together = one.train(3, RATE)
    apart = np.concatenate([other.train(1, RATE), other.train(2, RATE)])
    np.testing.assert_array_equal(together, apart)
    np.testing.assert_array_equal(one.parameters().vector, other.parameters().vector)


def test_shared_arrays_train_as_own_arrays(softmax: TrainableModel, rows: Draw) -> None:
    x, y = rows(softmax, 60)
    index = np.array([59, 3, 3, 17, *range(20, 40)])
    shared = Device(softmax, Examples(x, y, index))
    owned = Device(softmax, (x[index], y[index]))
    np.testing.assert_array_equal(shared.train(1, RATE), owned.train(1, RATE))


def test_random_numbers_depend_on_device_round_and_purpose(softmax: TrainableModel, rows: Draw) -> None:
    data = rows(softmax, 1)
    device = Device(softmax, data, seed=1, id=2, round=3)
    assert device.random("mask").random() == Device(softmax, data, seed=1, id=2, round=3).random("mask").random()
    drawn = [device.random(*purpose).random() for purpose in [("mask",), ("mask", 1), ("noise",), ()]]
    drawn.append(Device(softmax, data, seed=1, id=3, round=2).random("mask").random())
    assert len(set(drawn)) == 5


# --- the plan and the step size ------------------------------------------------------------------------------------


def test_plan_is_the_default(softmax: TrainableModel, rows: Draw) -> None:
    data = rows(softmax, 20)
    planned = Device(softmax, data, plan=TrainingPlan(epochs=3, learning_rate=0.2))
    named = Device(softmax, data)
    np.testing.assert_array_equal(planned.train(), named.train(epochs=3, learning_rate=0.2))
    assert planned.learning_rate() == 0.2
    assert planned.learning_rate(0.7) == 0.7


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_steps_replace_epochs(softmax: TrainableModel, rows: Draw, steps: int) -> None:
    """Steps are the first steps of whole epochs; explicit epochs take precedence."""
    data = rows(softmax, 20)
    device = Device(softmax, data, plan=TrainingPlan(epochs=7, steps=steps))
    losses = Device(softmax, data).train(epochs=3)
    np.testing.assert_array_equal(device.train(), losses[:steps])
    assert device.train(epochs=1).shape == (2,)


def test_models_own_step_size_is_the_fallback(softmax: TrainableModel, rows: Draw) -> None:
    own = softmax.manifest.optimizer["learning_rate"]
    data = rows(softmax, 20)
    np.testing.assert_array_equal(Device(softmax, data).train(), Device(softmax, data).train(1, own))


def test_zero_steps_change_nothing(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 20), plan=TrainingPlan(epochs=0))
    before = device.parameters().vector
    assert device.train().shape == (0,)
    assert device.train(epochs=1, learning_rate=0.0).shape == (2,)
    np.testing.assert_array_equal(device.parameters().vector, before)


def test_settings_out_of_range(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 2))
    with pytest.raises(ConfigurationError, match=r"train\.epochs: expected a whole number of at least 0, found -1"):
        device.train(epochs=-1)
    for rate in (np.nan, np.inf):
        with pytest.raises(ConfigurationError, match="device 0: expected a finite learning rate, found"):
            device.train(learning_rate=rate)
    with pytest.raises(
        ConfigurationError, match="expected whole numbers of at least 0 as seed, id and round, found -1, 0, 0"
    ):
        Device(softmax, rows(softmax, 2), seed=-1)


def test_wrong_number_of_rows_is_refused(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 2), id=4)
    for count in (0, 17):
        with pytest.raises(DataError, match=f"device 4: expected a batch of 1 to 16 rows, found {count}"):
            device.train_batch(*rows(softmax, count))
    with pytest.raises(DataError, match="device 4, batch: x has 3 examples but y has 2"):
        device.train_batch(rows(softmax, 3)[0], rows(softmax, 2)[1])


def test_unsuitable_examples_are_refused(softmax: TrainableModel, rows: Draw) -> None:
    x, y = rows(softmax, 5)
    with pytest.raises(DataError, match=r"device 3, train, x: expected examples of shape \[8, 8, 1\], found \[64\]"):
        Device(softmax, (x.reshape(5, 64), y), id=3)
    with pytest.raises(DataError, match="device 3, test, y: label 10 is out of range"):
        Device(softmax, (x, y), test=(x, [0, 1, 2, 10, 0]), id=3)
    with pytest.raises(
        DataError, match="device 3: expected at least 1 training example, found 0; leave the device out"
    ):
        Device(softmax, (x[:0], y[:0]), id=3)


def test_arguments_of_another_type_are_refused(softmax: TrainableModel, rows: Draw) -> None:
    x, y = rows(softmax, 2)
    with pytest.raises(
        ConfigurationError, match=r"^device 0: expected a TrainableModel, found str; load it with Tr.*\.load"
    ):
        Device("model.tflite", (x, y))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^device 0: plan: expected a TrainingPlan, found dict; pass an inst"):
        Device(softmax, (x, y), plan={"epochs": 2})  # type: ignore[arg-type]
    for examples, found in ((x, "ndarray"), ((x, y, y), "tuple of 3"), (Dataset("made", x, y), "Dataset")):
        with pytest.raises(
            DataError, match=rf"^device 3, train: expected the pair \(x, y\), found {found}; pass inputs"
        ):
            Device(softmax, examples, id=3)  # type: ignore[arg-type]


def test_repr_is_one_line(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 5), test=rows(softmax, 2), id=3)
    assert repr(device) == "Device(3: softmax, 5 training, 0 validation and 2 test examples)"


def test_divergence_shows_in_the_losses(softmax: TrainableModel, rows: Draw) -> None:
    x, y = rows(softmax, 40)
    device = Device(softmax, (1e4 * x, y), test=(x, y))
    losses = device.train(epochs=2, learning_rate=1e38)
    assert not np.isfinite(losses).all()
    assert not device.parameters().isfinite()
    assert np.isnan(device.evaluate()["loss"])


# --- a model of another tool, without a manifest -------------------------------------------------------------------


@pytest.fixture(scope="module")
def foreign_rows() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    random = np.random.default_rng(1)
    return random.normal(size=(10, 6)).astype(np.float32), random.integers(0, 3, 10).astype(np.int32)


@pytest.mark.parametrize(
    ("name", "size", "filled"), [("plain", 4, True), ("weighted", 4, False), ("dynamic", 32, False)]
)
def test_foreign_model_trains(
    foreign: Path, foreign_rows: Any, numpy_softmax: Any, name: str, size: int, filled: bool
) -> None:
    x, y = foreign_rows
    model = TrainableModel.load(foreign / f"{name}.tflite", loss="sparse_categorical_crossentropy")
    device = Device(model, (x, y), test=(x, y))
    twin = numpy_softmax.of(*device.parameters().tensors())
    losses = device.train(2, learning_rate=0.1 if name == "dynamic" else None)
    expected = []
    for at in islice(orders(device.seed, device.id, device.round, len(x)), 2):
        for start in range(0, len(x), size):
            rows = at[start : start + size]
            rows = np.concatenate([rows, at[: size - len(rows)]]) if filled else rows
            expected.append(twin.step(x[rows], y[rows], 0.1))
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-6)
    for own, known in zip(device.parameters().tensors(), (twin.kernel, twin.bias), strict=True):
        np.testing.assert_allclose(own, known, rtol=0, atol=1e-6)
    figures = device.evaluate()
    assert figures["loss"] == pytest.approx(twin.losses(x, y).mean(), abs=1e-6)
    assert figures["accuracy"] == (twin.logits(x).argmax(axis=1) == y).mean()


def test_step_without_offset_has_no_proximal_term(foreign: Path, foreign_rows: Any) -> None:
    plain, proximal = (
        Device(TrainableModel.load(foreign / f"{n}.tflite"), foreign_rows) for n in ("plain", "proximal")
    )
    assert "mu" in proximal.model.capabilities
    np.testing.assert_allclose(proximal.train(2), plain.train(2), rtol=0, atol=1e-6)


def test_foreign_model_refuses_missing_inputs(foreign: Path, foreign_rows: Any) -> None:
    fixed = Device(TrainableModel.load(foreign / "plain.tflite"), foreign_rows)
    with pytest.raises(ModelError, match=r"plain.tflite: has a fixed step size; leave out the learning rate,"):
        fixed.train(learning_rate=0.1)
    free = Device(TrainableModel.load(foreign / "dynamic.tflite"), foreign_rows)
    with pytest.raises(ModelError, match=r"dynamic.tflite: has no default learning rate; pass one"):
        free.train()
    unknown = Device(TrainableModel.from_content((foreign / "dynamic.tflite").read_bytes()), foreign_rows)
    with pytest.raises(ModelError, match=r"its loss is unknown; pass it: TrainableModel\.load\(path, loss=\.\.\.\)"):
        unknown.evaluate("train")


# --- the library's example -----------------------------------------------------------------------------------------


def test_readme_example_learns(digits_cnn: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(digits_cnn.content)
    x, y = rows(digits_cnn, 40)
    xt, yt = rows(digits_cnn, 9, seed=1)
    xb, yb = x[:5], y[:5]

    model = TrainableModel.load(tmp_path / "model.tflite")
    assert {"train", "infer", "parameters", "restore"} <= set(model.signatures)
    assert all((p.name, p.shape, p.dtype, p.role, p.group) for p in model.parameters)
    device = Device(model, train=(x, y), test=(xt, yt), seed=0)
    losses = device.train(epochs=2, learning_rate=0.05)
    assert len(losses) == 6
    loss = device.train_batch(xb, yb, learning_rate=0.05)
    assert isinstance(loss, float)
    logits = device.infer(xt)
    assert logits.shape == (9, 10)
    weights = device.parameters()
    assert isinstance(weights, Weights)
    assert [t.shape for t in weights.tensors()] == [p.shape for p in model.parameters]
    device.restore(weights)
    device.save(tmp_path / "d0.safetensors")
    device.restore(tmp_path / "d0.safetensors")
    figures = device.evaluate()
    assert set(figures) == {"accuracy", "loss", "examples", "balanced_accuracy", "auc"}
    np.testing.assert_array_equal(device.infer(xt), logits)


def test_training_does_not_change_the_model(softmax: TrainableModel, rows: Draw) -> None:
    device = Device(softmax, rows(softmax, 20))
    initial = device.parameters().vector
    device.train(1, RATE)
    assert not np.array_equal(device.parameters().vector, initial)
    np.testing.assert_array_equal(Device(softmax, rows(softmax, 1)).parameters().vector, initial)
