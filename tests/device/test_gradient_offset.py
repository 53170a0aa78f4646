"""Steps that use g + mu w + b, in the graph or on the host."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odt_sim import Device, TrainableModel, Weights
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.errors import ConfigurationError, ModelError

Draw = Callable[..., tuple[NDArray[Any], NDArray[Any]]]
RATE, MU = 0.1, 0.3
ROUTES = ("grouped", "grouped_without_offset")


@pytest.fixture(params=ROUTES, ids=["in_graph", "on_host"])
def model(request: pytest.FixtureRequest) -> TrainableModel:
    """A model with Dropout and BatchNormalization, with the offset in the graph or on the host."""
    return request.getfixturevalue(request.param)


def offset_of(model: TrainableModel, seed: int = 0) -> Weights:
    layout = model.trainable_layout
    return Weights(layout, np.random.default_rng(seed).normal(size=layout.size).astype(np.float32))


@pytest.mark.parametrize("group", [None, "head", "body", "body_norm"])
def test_offset_in_graph_equals_offset_on_host(
    grouped: TrainableModel, grouped_without_offset: TrainableModel, rows: Draw, group: str | None
) -> None:
    """Three epochs of two full batches and a partial one, with equal Dropout masks."""
    data = rows(grouped, 10)
    one, other = Device(grouped, data, seed=1), Device(grouped_without_offset, data, seed=1)
    for device in (one, other):
        device.set_gradient_offset(offset_of(grouped), MU)
    losses = [device.train(3, RATE, group=group) for device in (one, other)]
    np.testing.assert_allclose(*losses, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(one.parameters().vector, other.parameters().vector, rtol=0, atol=1e-6)
    without = Device(grouped, data, seed=1)
    without.train(3, RATE, group=group)
    assert np.abs(without.parameters().vector - one.parameters().vector).max() > 0.1


@pytest.mark.parametrize("group", [None, "norm"])
def test_step_adds_the_offset_to_the_gradient(model: TrainableModel, rows: Draw, group: str | None) -> None:
    """`w - r (g + mu w + b)` and `w - r g` differ by `r (mu w + b)` in the trained parameters."""
    x, y = rows(model, 3)
    plain, shifted = Device(model, (x, y)), Device(model, (x, y))
    before, b = plain.parameters(), offset_of(model)
    shifted.set_gradient_offset(b, MU)
    assert shifted.train_batch(x, y, RATE, group=group) == plain.train_batch(x, y, RATE, group=group)
    apart = plain.parameters() - shifted.parameters()
    for p in model.parameters:
        trained = p.role == "trainable" and group in (None, p.group)
        expected = RATE * (MU * before[p.name] + b[p.name]) if trained else np.zeros(p.shape)
        np.testing.assert_allclose(apart[p.name], expected, rtol=0, atol=1e-6)


def test_offset_without_b_is_weight_decay(model: TrainableModel, rows: Draw) -> None:
    x, y = rows(model, 4)
    one, other = Device(model, (x, y)), Device(model, (x, y))
    one.set_gradient_offset(None, MU)
    other.set_gradient_offset(Weights.zeros(model.trainable_layout), MU)
    one.train(2, RATE)
    other.train(2, RATE)
    np.testing.assert_array_equal(one.parameters().vector, other.parameters().vector)
    assert not np.array_equal(one.parameters().vector, Device(model, (x, y)).parameters().vector)


def test_offset_stays_until_replaced(model: TrainableModel, rows: Draw, tmp_path: Path) -> None:
    data = rows(model, 6)
    shifted, never = Device(model, data), Device(model, data)
    given = offset_of(model)
    shifted.set_gradient_offset(given)
    given.vector[:] = np.nan  # the caller's array
    shifted.train(1, RATE)
    shifted.restore(shifted.parameters())
    before = shifted.parameters()
    shifted.train(1, RATE)
    assert shifted.parameters().isfinite()
    assert not np.array_equal(shifted.parameters().vector, before.vector)
    shifted.set_gradient_offset(None)
    shifted.save(tmp_path / "device")
    never.restore(tmp_path / "device")
    np.testing.assert_array_equal(shifted.train(1, RATE), never.train(1, RATE))
    np.testing.assert_array_equal(shifted.parameters().vector, never.parameters().vector)


def test_offset_belongs_to_one_device(model: TrainableModel, rows: Draw) -> None:
    """Three devices in one interpreter train as in three interpreters."""

    def run(pools: list[RuntimePool]) -> list[bytes]:
        devices = [Device(model, rows(model, 5, i), id=i, pool=pool) for i, pool in enumerate(pools)]
        devices[1].set_gradient_offset(offset_of(model, 1), MU)
        devices[2].set_gradient_offset(offset_of(model, 2))
        for id in (1, 0, 2, 1, 2, 0, 0, 1):
            devices[id].train(1, RATE)
        return [device.parameters().vector.tobytes() for device in devices]

    shared = RuntimePool(model)
    assert run([shared] * 3) == run([RuntimePool(model) for _ in range(3)])


def test_offset_is_written_only_when_it_changes(grouped: TrainableModel, rows: Draw, calls: Counter[str]) -> None:
    pool = RuntimePool(grouped)
    plain, shifted, last = (Device(grouped, rows(grouped, 8), id=i, pool=pool) for i in range(3))
    _ = pool.head.first  # a new engine of the head sets its offset to zero
    calls.clear()
    plain.train(2, RATE)
    assert calls["set_gradient_offset"] == 0
    shifted.set_gradient_offset(offset_of(grouped), MU)
    shifted.train(3, RATE)
    assert calls["set_gradient_offset"] == 1
    shifted.infer(shifted.train_examples.x)
    plain.evaluate("train")
    shifted.train(1, RATE)
    assert calls["set_gradient_offset"] == 1
    plain.train(2, RATE)
    last.train(1, RATE)
    assert calls["set_gradient_offset"] == 2


def test_offset_of_a_row_is_one_more_place_of_an_embedding(tmp_path: Path) -> None:
    """RMSprop adds the squares of the gradients of all positions, like Keras, and the square of the row's offset."""
    import keras

    from odt_sim.export import export_model

    layers = keras.layers
    network = keras.Sequential(
        [keras.Input((3,), dtype="int32"), layers.Embedding(3, 1), layers.GlobalAveragePooling1D()]
    )
    network.set_weights([np.float32([[1.0], [2.0], [3.0]])])
    optimizer, path = keras.optimizers.RMSprop(RATE), tmp_path / "rows.tflite"
    export_model(network, path, loss="mse", optimizer=optimizer, batch_size=1, gradient_offset=True)
    model = TrainableModel.load(path)
    x, y = np.int32([[0, 0, 1]]), np.float32([[0.0]])
    of_place = 2 * (1 + 1 + 2) / 3 / 3  # of the squared mean of three rows, by one of them
    for offset in (np.zeros(3), np.array([0.5, -1.0, 2.0])):
        device = Device(model, (x, y))
        device.set_gradient_offset(Weights(model.trainable_layout, np.float32(offset)))
        before = device.parameters().vector
        device.train_batch(x, y, RATE)
        places = np.array([2.0, 1.0, 0.0])
        root = np.sqrt(0.1 * (places * of_place**2 + offset**2) + 1e-7)
        expected = before - RATE * (places * of_place + offset) / root
        np.testing.assert_allclose(device.parameters().vector, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_adam_with_offset_equals_keras(adam_with_offset: TrainableModel, rows: Draw) -> None:
    """Equal to Keras' Adam on `loss + mu/2 |w|^2 + b w`; a decoupled decay would differ."""
    import keras
    import tensorflow as tf

    from odt_sim.export.zoo import mlp

    model = adam_with_offset
    x, y = rows(model, 20)
    device = Device(model, (x, y))
    b = offset_of(model)
    twin = mlp(input_shape=[6], classes=3, hidden=[5])
    twin.set_weights(device.parameters().tensors())
    optimizer, loss = keras.optimizers.Adam(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    device.set_gradient_offset(b, MU)
    for start in range(0, 20, 4):
        batch = slice(start, start + 4)
        with tf.GradientTape() as tape:
            plain = loss(y[batch], twin(x[batch], training=True))
            pairs = zip(twin.trainable_variables, b.tensors(), strict=True)
            terms = [tf.reduce_sum(MU / 2 * w.value**2 + part * w.value) for w, part in pairs]
            objective = plain + tf.add_n(terms)
        assert device.train_batch(x[batch], y[batch], RATE) == pytest.approx(float(plain), abs=1e-5)
        optimizer.apply(tape.gradient(objective, twin.trainable_variables), twin.trainable_variables)
    for own, known in zip(device.parameters().tensors(), twin.get_weights(), strict=True):
        np.testing.assert_allclose(own, known, rtol=0, atol=1e-5)


def test_wrong_offsets_are_refused(grouped: TrainableModel, adam: TrainableModel, rows: Draw) -> None:
    device = Device(grouped, rows(grouped, 2))
    with pytest.raises(
        ModelError,
        match=r"consists of the 6 trainable parameters, 63 floats; found 8 of 73; select the model's trainable_layout",
    ):
        device.set_gradient_offset(device.parameters())
    for mu in (np.nan, np.inf, "1"):
        with pytest.raises(ConfigurationError, match="gradient offset: expected a finite mu, found"):
            device.set_gradient_offset(None, mu)
    adaptive = Device(adam, rows(adam, 2))
    adaptive.set_gradient_offset(None)
    for given in [(None, MU), (Weights.zeros(adam.trainable_layout),)]:
        with pytest.raises(
            ModelError, match=r"do not support a gradient offset, since they .*; export it with gradient_offset=True"
        ):
            adaptive.set_gradient_offset(*given)
