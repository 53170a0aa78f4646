"""The effect of each attack on examples and updates, and refused settings."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from odt_sim import Device, TrainableModel
from odt_sim.attacks import Attack, Backdoor, LabelPoisoning, RandomUpdates, Scaling
from odt_sim.device.examples import Examples
from odt_sim.errors import ConfigurationError
from odt_sim.strategies import FedAvg

LABELS = np.array([0, 1, 2, 1], np.int32)


@pytest.fixture
def device(digits_mlp: TrainableModel) -> Device:
    x = np.linspace(0, 1, 4 * 64, dtype=np.float32).reshape(4, 8, 8, 1)
    return Device(digits_mlp, (x, LABELS), seed=3, id=5)


def test_no_attack_is_the_strategy_itself(device: Device) -> None:
    broadcast = FedAvg().init(device.initial).broadcast
    honest = Attack().local(FedAvg(), device, broadcast)
    device.begin_again()
    flipped = Scaling(-2.0).local(FedAvg(), device, broadcast)
    assert_array_equal(flipped.tensors["weights"].vector, -2 * honest.tensors["weights"].vector)
    assert flipped.weight == honest.weight


def test_attack_shows_its_settings() -> None:
    assert repr(Scaling(-3.0)) == "Scaling(factor=-3.0)"


def test_scaling_keeps_kinds_of_tensors(device: Device) -> None:
    sent = Scaling(-3.0).sent(device, {"v": np.array([1.0, 2.0], np.float32)})
    assert_array_equal(sent["v"], np.array([-3, -6], np.float32))
    assert sent["v"].dtype == np.float32


@pytest.mark.parametrize("attack", [Scaling(-3.0), RandomUpdates(1.0)], ids=lambda attack: attack.name)
def test_whole_numbers_stay(device: Device, attack: Attack) -> None:
    """They describe the layout of an update, such as the ranks of its matrices."""
    sent = attack.sent(device, {"ranks": np.array([3, 1], np.int32), "v": np.ones(2, np.float32)})
    assert_array_equal(sent["ranks"], [3, 1])
    assert not np.isin(sent["v"], 1).any()


def test_mirrored_labels(device: Device) -> None:
    x, y = LabelPoisoning().poisoned(device, device.train_examples).take()
    assert_array_equal(y, [9, 8, 7, 8])
    assert_array_equal(x, device.train_examples.take()[0])
    assert_array_equal(device.train_examples.take()[1], LABELS)  # shared with honest devices


def test_random_labels_are_uniform_and_the_same_in_each_round(digits_mlp: TrainableModel) -> None:
    zeros = (np.zeros((5000, 8, 8, 1), np.float32), np.zeros(5000, np.int32))
    attack = LabelPoisoning(labels="random")
    one, later = (Device(digits_mlp, zeros, id=1, round=round) for round in (1, 2))
    y = attack.poisoned(one, one.train_examples).take()[1]
    assert_array_equal(attack.poisoned(later, later.train_examples).take()[1], y)
    assert np.bincount(y, minlength=10) == pytest.approx([500] * 10, abs=75)


def test_random_updates_are_noise_of_their_deviation(device: Device) -> None:
    first = RandomUpdates(2.0).sent(device, {"v": np.full(20_000, 50, np.float32)})["v"]
    assert first.std() == pytest.approx(2, rel=0.05)
    assert abs(first.mean()) < 0.1
    device.round = 1
    assert abs(np.corrcoef(RandomUpdates(2.0).sent(device, {"v": first})["v"], first)[0, 1]) < 0.05


def images(device: Any) -> Examples:
    x = np.zeros((4, 3, 3, 1), np.float32)
    return Examples(x, LABELS)


def test_backdoor_stamps_a_share_and_relabels_it(device: Device) -> None:
    given = images(device)
    x, y = Backdoor(target=2, share=0.5, size=2, value=7.0).poisoned(device, given).take()
    patch = np.zeros((3, 3))
    patch[1:, 1:] = 7
    stamped = np.flatnonzero(x.any(axis=(1, 2, 3)))
    assert len(stamped) == 2
    for row in stamped:
        assert_array_equal(x[row, :, :, 0], patch)
    assert_array_equal(y[stamped], [2, 2])
    others = np.setdiff1d(np.arange(4), stamped)
    assert_array_equal(y[others], LABELS[others])
    assert not given.take()[0].any()


def test_success_is_measured_on_stamped_examples_of_other_classes(device: Device) -> None:
    x, y = Backdoor(target=1, size=1).triggered(images(device)).take()
    assert_array_equal(y, [1, 1])  # of the labels 0, 1, 2, 1
    assert_array_equal(x[:, 2, 2, 0], [1, 1])
    assert x.sum() == 2


@pytest.mark.parametrize(
    ("attack", "settings", "message"),
    [
        (Scaling, {"factor": float("nan")}, "attack.factor: expected a number"),
        (RandomUpdates, {"deviation": 0}, "attack.deviation: expected a number above 0"),
        (LabelPoisoning, {"labels": "swapped"}, "attack.labels: expected mirrored or random, found 'swapped'"),
        (Backdoor, {"share": 1.5}, "attack.share: expected a number of at least 0 and at most 1"),
        (Backdoor, {"target": -1}, "attack.target: expected a whole number of at least 0"),
    ],
)
def test_settings_out_of_range(attack: type, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        attack(**settings)


def test_attacks_on_models_that_they_do_not_fit(
    momentum: TrainableModel, regression: TrainableModel, digits_mlp: TrainableModel
) -> None:
    with pytest.raises(ConfigurationError, match="attack backdoor: expected a model for images"):
        Backdoor().check(momentum)
    with pytest.raises(
        ConfigurationError, match=r"one target, a class number for each example, found \w+ with the target float32 "
    ):
        LabelPoisoning().check(regression)
    with pytest.raises(ConfigurationError, match=r"attack\.target: expected a class from 0 to 9, found 10"):
        Backdoor(target=10).check(digits_mlp)
    Backdoor(size=8).check(digits_mlp)
    with pytest.raises(ConfigurationError, match=r"attack\.size: expected 1 to 8, since .* 8 x 8 pixels, found 9$"):
        Backdoor(size=9).check(digits_mlp)
