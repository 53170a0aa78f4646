"""Seeded data sets: equal for equal seeds, with the properties stated in their docstrings."""

from typing import Any

import numpy as np
import pytest

from odt_sim.conf.demo_data import (
    LONGEST,
    arm,
    digit_numbers,
    digit_properties,
    next_words,
    recommendations,
    shapes,
    tagged_sentences,
)
from odt_sim.data.dataset import Dataset
from odt_sim.data.devices.federated import federate
from odt_sim.data.devices.partition import by_user, dirichlet, iid
from odt_sim.data.store.columns import arrays_of
from odt_sim.errors import ConfigurationError, DataError

DRAWN: dict[str, Any] = {
    "shapes": lambda seed: shapes(4, 5, seed=seed),
    "tagged_sentences": lambda seed: tagged_sentences(4, 5, seed=seed),
    "next_words": lambda seed: next_words(4, 5, seed=seed),
    "arm": lambda seed: arm(4, 5, seed=seed),
    "digit_numbers": lambda seed: digit_numbers(4, 5, seed=seed),
    "digit_properties": lambda seed: digit_properties(4, seed=seed),
    "recommendations": lambda seed: recommendations(4, 60, 6, 2, 10, seed=seed),
}


@pytest.mark.parametrize("name", DRAWN)
def test_data_depends_on_its_seed_and_each_user_is_a_device(name: str) -> None:
    one, same, other = (DRAWN[name](seed) for seed in (0, 0, 1))
    for of_one, of_same, of_other in zip(*(arrays_of(d.x).values() for d in (one, same, other)), strict=True):
        np.testing.assert_array_equal(of_one, of_same)
        assert len(of_one) == len(of_other)
    last = [next(reversed(arrays_of(d.x).values())) for d in (one, other)]
    assert name == "digit_properties" or not np.array_equal(*last)
    assert name != "digit_properties" or not np.array_equal(one.users, other.users)
    method = "given" if one.parts is not None else "stratified"
    assert federate(one, by_user, None, 0, method=method).users.tolist() == [0, 1, 2, 3]
    with pytest.raises(ConfigurationError, match=r"^data\.seed: expected a number of at least 0, found -1$"):
        DRAWN[name](-1)


@pytest.mark.parametrize("name", DRAWN)
def test_partition_by_label_is_refused_in_one_line(name: str) -> None:
    data: Dataset = DRAWN[name](0)
    with pytest.raises(
        DataError, match=r"expected one class label for each example, found .* iid, quantity_skew or by_"
    ):
        dirichlet(data, 2, 0, alpha=1.0)


def test_pixels_have_the_class_of_what_they_show() -> None:
    data = shapes(6, 20)
    assert data.x.shape == (120, 16, 16, 1)
    assert data.y.shape == (120, 16, 16)
    means = [data.x[..., 0][data.y == label].mean() for label in range(3)]
    assert means[0] < min(means[1:])
    assert all(set(np.unique(label)) == {0, 1, 2} for label in data.y[:10])


def test_numbers_of_a_part_show_images_of_that_part_alone() -> None:
    data = digit_numbers(4, 30)
    parts = np.asarray(data.parts)
    assert np.bincount(parts).tolist() == [4 * 18, 4 * 6, 4 * 6]
    lengths = np.count_nonzero(data.y, axis=1)
    assert (lengths.min(), lengths.max(), data.y.shape[1]) == (2, 5, LONGEST)
    first = {part: {data.x[i, :8].tobytes() for i in np.flatnonzero(parts == part)} for part in range(3)}
    assert len(first[0]) > 20
    assert not first[0] & (first[1] | first[2])
    assert not first[1] & first[2]


def test_tag_follows_from_a_word_of_its_own() -> None:
    data = tagged_sentences(10, 40)
    x, y = data.x, data.y
    own = (x > 0) & ((x - 1) % 10 >= 4)  # the first four words of ten belong to two classes
    np.testing.assert_array_equal(y[own], (x[own] - 1) // 10)
    shared = (x > 0) & ~own
    assert 0.3 < (y[shared] == (x[shared] - 1) // 10).mean() < 0.95
    assert (y[x == 0] == 0).all()


def test_next_word_is_the_word_one_later() -> None:
    data = next_words(3, 20, length=6)
    both = (data.x[:, 1:] > 0) & (data.y[:, :-1] > 0)
    np.testing.assert_array_equal(data.x[:, 1:][both], data.y[:, :-1][both])
    assert ((data.x > 0) == (data.y > 0)).all()
    assert data.classes == 41


def test_each_digit_has_its_properties() -> None:
    data = digit_properties()
    assert data.y.shape == (1797, 4)
    assert data.y[:5].tolist() == [
        [1, 0, 0, 1],
        [0, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 0, 0],
        [1, 0, 0, 1],
    ]  # 0, 1, 2, 3, 4


def test_hand_is_as_far_away_as_the_arm_is_long() -> None:
    data = arm(30, 50)
    reach = np.linalg.norm(data.y, axis=1)
    straight = np.abs(data.x[:, 1]) < 0.1
    assert reach[straight].mean() == pytest.approx(2, abs=0.15)  # both parts are about 1 long


def test_last_two_interactions_are_held_out_among_items_that_the_user_did_not_take() -> None:
    data = recommendations(5, 80, interactions=6, negatives=3, candidates=12)
    user, item = (data.x.column(name) for name in ("user", "item"))
    for one in range(5):
        own = user == one
        assert len(np.unique(item[own])) == own.sum() == 6 + 4 * 3 + 2 * 12  # no item twice
        assert [int(data.y[own & (data.parts == part)].sum()) for part in range(3)] == [4, 1, 1]
        assert [int((own & (data.parts == part)).sum()) for part in range(3)] == [16, 13, 13]
    with pytest.raises(ConfigurationError, match=r"^data\.items: expected at least 42, .*, found 41; use more items"):
        recommendations(5, 41, interactions=6, negatives=3, candidates=12)


def test_given_split_is_that_of_the_data() -> None:
    data = recommendations(3, 60, 6, 2, 10)
    federated = federate(data, by_user, None, 0, method="given")
    for device in range(3):
        for part, rows in enumerate(federated.parts(device)):
            assert (data.parts[rows] == part).all()
    assert federated.spread == "by_user split=given"
    with pytest.raises(DataError, match=r"^data arm seed=0: has no predefined split; choose another split\.method"):
        federate(arm(2, 5), by_user, None, 0, method="given")
    few = Dataset("few", np.zeros((4, 1), np.float32), np.zeros(4, np.float32), parts=np.array([0, 0, 0, 2]))
    with pytest.raises(
        DataError,
        match=r"^device \d: has \d training and 0 test examples in the parts of the data, expected .* unseen .*; mark one",
    ):
        federate(few, iid, 2, 0, method="given")
