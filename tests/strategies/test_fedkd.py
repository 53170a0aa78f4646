"""FedKD against plain numpy: mutual distillation in each batch, and low-rank changes both ways."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from odt_sim import Fleet, TrainableModel, Weights
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.weights import Layout
from odt_sim.strategies.two_models.fedkd import FedKD, compressed, restored

RATE = 0.1
MATRICES = ((0, 6, 5), (35, 5, 3))
"""Where matrices of the perceptron begin among its weights, with their rows and columns; the others are biases."""


def log_softmax(z: Any) -> Any:
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def taught(twin: Any, w: Any, teacher: Any, factor: float, x: Any, y: Any) -> Any:
    """Return weights after a step on the losses and the distillation, by numerical gradients."""
    t = log_softmax(twin.at(teacher).logits(x))

    def loss(w: Any) -> float:
        model = twin.at(w)
        divergence = (np.exp(t) * (t - log_softmax(model.logits(x)))).sum(axis=-1)
        return float((model.losses(x, y) + factor * divergence).mean())

    steps = 1e-6 * np.eye(len(w))
    return w - RATE * np.array([(loss(w + step) - loss(w - step)) / 2e-6 for step in steps])


def low_rank(change: Any, energy: float) -> tuple[Any, int]:
    """Return a change without its small singular values, and how many numbers travel."""
    kept, numbers = change.copy(), 5 + 3
    for start, rows, columns in MATRICES:
        place = slice(start, start + rows * columns)
        u, s, v = np.linalg.svd(change[place].reshape(rows, columns), full_matrices=False)
        rank = next(k for k in range(1, len(s) + 1) if (s[:k] ** 2).sum() >= energy * (s**2).sum())
        small = rank * (rows + 1 + columns) < rows * columns
        if small:
            kept[place] = ((u[:, :rank] * s[:rank]) @ v[:rank]).ravel()
        numbers += rank * (rows + 1 + columns) if small else rows * columns
    return kept, numbers


def test_agrees_with_numpy(small_twin: Any, termed: TrainableModel) -> None:
    """T is 0.6, 0.7 and 0.7; factors are sent, and from the second round on no device receives the mentee."""
    run = small_twin.run(FedKD(energy_start=0.5, energy_end=0.7, rounds=2), termed, rounds=3)
    mentee, mentors, ups, downs = small_twin.initial, [small_twin.initial] * 3, [], [53]
    for round, energy in ((1, 0.6), (2, 0.7), (3, 0.7)):
        changes = []
        for device in range(3):
            w, v = mentee, mentors[device]
            for x, y in small_twin.batches(device, round):
                factor = 1 / sum(small_twin.at(each).losses(x, y).mean() for each in (w, v))
                w, v = taught(small_twin, w, v, factor, x, y), taught(small_twin, v, w, factor, x, y)
            mentors[device] = v
            changes.append(low_rank(w - mentee, energy))
        change, numbers = low_rank(small_twin.mean([change for change, _ in changes]), energy)
        mentee = mentee + change
        ups.append(sum(numbers for _, numbers in changes))
        downs.append(numbers)
    assert_allclose(run.weights.vector, mentee, rtol=0, atol=1e-4)
    for device, w in enumerate(mentors):
        assert_allclose(run.deployed(device).vector, w, rtol=0, atol=1e-4)
    ranks = 4 * 4  # of four parameters
    assert [row["bytes_up"] for row in run.records] == [4 * up + 3 * ranks for up in ups]
    assert [row["bytes_down"] for row in run.records] == [3 * 4 * 53, *(3 * (4 * down + ranks) for down in downs[1:3])]
    assert max(ups) < 3 * 53


def test_server_takes_a_step_of_the_mean(small_twin: Any, termed: TrainableModel) -> None:
    """With the full energy nothing is lost, so that two settings differ only in the step."""
    changes = []
    for settings in ({}, {"server_learning_rate": 0.3}, {"weighting": "uniform"}):
        run = small_twin.run(FedKD(1, 1, **settings), termed, rounds=1)
        changes.append(run.weights.vector - small_twin.initial)
    assert_allclose(changes[1], 0.3 * changes[0], rtol=0, atol=1e-5)
    assert np.abs(changes[2] - changes[0]).max() > 1e-4


def test_device_without_the_last_round_receives_the_mentee(small_twin: Any, termed: TrainableModel) -> None:
    """Two of three devices per round: all have the server's mentee before they train."""
    run = small_twin.run(FedKD(), termed, rounds=3, fleet=Fleet(cohort=2))
    state = run.commit.state
    holders = state.private["holders"].tolist()
    for device in range(3):
        message = run.strategy.message(state, device)
        assert set(message) == ({"values", "ranks"} if device in holders else {"mentee"})
        made = run.device(device)
        run.strategy.local(made, message)
        np.testing.assert_array_equal(made.state["mentee"].vector, state.weights.vector)
    assert len(holders) == 2


def test_unseen_device_trains_a_mentor(small_twin: Any, termed: TrainableModel) -> None:
    run = small_twin.run(FedKD(unseen_epochs=1), termed, rounds=2, fleet=Fleet(unseen=1))
    unseen = run.device(run.unseen)
    before = unseen.weights.vector.copy()
    assert not np.array_equal(run.deployed(unseen.id).vector, before)


def weights(**arrays: Any) -> Weights:
    tensors = [np.asarray(array, np.float32) for array in arrays.values()]
    layout = Layout(tuple(Parameter(name, array.shape) for name, array in zip(arrays, tensors, strict=True)))
    return Weights.from_tensors(layout, tensors)


def rotated(singular: list[float], rows: int, columns: int) -> Any:
    """Return a matrix with given singular values."""
    random = np.random.default_rng(0)
    u, v = (np.linalg.qr(random.normal(size=(size, len(singular))))[0] for size in (rows, columns))
    return (u * singular) @ v.T


@pytest.mark.parametrize(("energy", "rank"), [(0.5, 1), (0.63, 1), (0.65, 2), (0.99, 2), (0.999, 3), (0.9999, 3)])
def test_keeps_the_fewest_singular_values_that_hold_the_energy(energy: float, rank: int) -> None:
    """The squares of 8, 6 and 0.5 are 64, 36 and 0.25: shares of 0.638, 0.998 and 1."""
    before = weights(kernel=rotated([8, 6, 0.5], 20, 10), bias=[1, 2])
    sent = compressed(before, energy)
    assert sent["ranks"].tolist() == [rank, 0]
    assert sent["values"].size == rank * (20 + 1 + 10) + 2
    after = restored(sent, before.layout)
    assert after["bias"].tolist() == [1, 2]
    left = np.linalg.svd(before["kernel"] - after["kernel"])[1]
    assert_allclose(left[: 3 - rank], [8, 6, 0.5][rank:], atol=1e-5)
    assert_allclose(left[3 - rank :], 0, atol=1e-5)


@pytest.mark.parametrize(
    "kernel", [rotated([3, 2], 2, 3), np.zeros((20, 10)), np.full((20, 10), np.nan)], ids=["small", "zero", "nan"]
)
def test_matrices_that_gain_nothing_travel_whole(kernel: Any) -> None:
    before = weights(kernel=kernel)
    sent = compressed(before, 0.95)
    assert sent["ranks"].tolist() == [0]
    np.testing.assert_array_equal(restored(sent, before.layout).vector, before.vector)


def test_kernel_of_a_convolution_is_a_matrix_of_its_filters() -> None:
    before = weights(kernel=rotated([5, 1e-3], 27, 8).reshape(3, 3, 3, 8), scale=np.float32(2), rest=np.zeros((0, 4)))
    sent = compressed(before, 0.9)
    assert sent["ranks"].tolist() == [1, 0, 0]
    assert_allclose(restored(sent, before.layout).vector, before.vector, atol=1e-3)
