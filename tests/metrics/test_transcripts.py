"""Transcripts: known answers, and distances against an exhaustive recursion."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odt_sim.data.checks.model_checks import check_transcripts
from odt_sim.errors import DataError
from odt_sim.metrics.scores import Transcripts, decoded, edit_distances


def scores(path: list[list[int]], classes: int = 4) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[np.array(path)]


def test_repeated_classes_are_one_label_unless_a_blank_parts_them() -> None:
    found = decoded(np.array([[1, 1, 0, 1, 2], [0, 0, 0, 0, 0], [3, 3, 3, 2, 2]]))
    assert found.tolist() == [[1, 1, 2, 0, 0], [0, 0, 0, 0, 0], [3, 2, 0, 0, 0]]


def test_errors_are_counted_over_the_labels_of_all_examples() -> None:
    path = [[1, 0, 2, 2], [1, 3, 3, 0], [0, 0, 0, 0]]
    found = Transcripts(scores(path), np.array([[1, 2, 0], [1, 2, 3], [2, 0, 0]]))
    assert found.token_error_rate() == pytest.approx((0 + 1 + 1) / 6)
    assert found.exact_match() == pytest.approx(1 / 3)


def test_more_labels_than_there_are_give_a_rate_above_one() -> None:
    assert Transcripts(scores([[1, 2, 3, 1]]), np.array([[2]])).token_error_rate() == 3


def test_rate_without_labels_is_undefined_and_nan_spells_nothing() -> None:
    outputs = scores([[1, 2]])
    outputs[0, 1] = np.nan
    nothing = Transcripts(outputs, np.array([[0, 0]]))
    assert (nothing.token_error_rate(), nothing.exact_match()) == (None, 0)
    assert Transcripts(outputs, np.array([[1, 0]])).exact_match() == 1


@cache
def distance(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    if not one or not other:
        return len(one) + len(other)
    replaced = distance(one[1:], other[1:]) + (one[0] != other[0])
    return min(replaced, distance(one[1:], other) + 1, distance(one, other[1:]) + 1)


LABELS = st.lists(st.integers(1, 3), max_size=6).map(tuple)


@settings(max_examples=60)
@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=4))
def test_distances_are_those_of_the_definition(pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    one, other = (np.array([[*own, *[0] * (6 - len(own))] for own in side]) for side in zip(*pairs, strict=True))
    assert edit_distances(one, other).tolist() == [distance(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            [[1, 2], [-1, 0]],
            r"^data a: example 1 has the label -1; .*the labels 1\.\.4, followed by zeros: pad with 0,",
        ),
        ([[1, 255]], r"^data a: example 0 has the label 255; .*followed by zeros: pad with 0,"),
        ([[1.0, -1.0]], r"^data a: example 0 has the label -1\.0; .*followed by zeros: pad with 0,"),
        ([[1, 2], [0, 3]], r"^data a: example 1 has a 0 before a label; .*number the labels from 1$"),
        (
            [[1, 2], [2, 2]],
            r"^data a: example 1 needs 3 frames, .*, but the model's output has 2; leave out such examples",
        ),
    ],
)
def test_targets_that_cannot_be_spelled_are_refused(y: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_transcripts("data a", np.array(y), 2, 5)
