"""Scores that may be undefined, against known answers and scikit-learn."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score

from odt_sim.metrics.answers import Classes, Values
from odt_sim.metrics.scores import auc, auc_of_labels

SEEDS = st.integers(0, 2**31)


@given(SEEDS, st.integers(1, 60))
def test_balanced_accuracy_is_that_of_scikit_learn(seed: int, examples: int) -> None:
    random = np.random.default_rng(seed)
    labels, predicted = random.integers(0, 5, (2, examples))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of absent and of single classes
        expected = balanced_accuracy_score(labels, predicted)
    assert Classes(np.eye(5)[predicted], labels, False).balanced_accuracy() == pytest.approx(expected, abs=1e-12)


def test_auc_counts_pairs() -> None:
    """The positive has the higher score in four of six pairs, and an equal one in one."""
    scores, positive = np.array([[0.1], [0.4], [0.8], [0.4], [0.9]]), np.array([[0], [1], [0], [0], [1]], np.bool_)
    assert auc(scores, positive) == pytest.approx((1 + 0.5 + 0 + 3) / 6)
    assert auc(-scores, positive) == pytest.approx(1.5 / 6)


def test_classes_of_all_or_no_examples_do_not_count() -> None:
    scores = np.array([[0.9, 0.1, 0.5, 0.7], [0.2, 0.8, 0.5, 0.1]])
    positive = np.array([[True, False, False, True], [False, True, False, True]])
    assert auc(scores, positive) == 1.0
    assert auc(scores[:, 2:], positive[:, 2:]) is None
    assert auc(np.full((2, 2), np.nan), positive[:, :2]) is None


@given(SEEDS, st.integers(2, 80), st.integers(2, 6))
def test_auc_is_that_of_scikit_learn(seed: int, examples: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.dirichlet(np.ones(classes), examples).round(1)  # with ties
    labels = random.permutation(np.resize(np.arange(classes), examples))
    positive = labels[:, np.newaxis] == np.arange(classes)
    counted = [k for k in range(classes) if 0 < positive[:, k].sum() < examples]
    expected = np.mean([roc_auc_score(positive[:, k], scores[:, k]) for k in counted])
    assert auc(scores, positive) == pytest.approx(expected, abs=1e-12)
    assert auc_of_labels(lambda chosen: scores[:, chosen], labels) == auc(scores, positive)
    if classes > 2 and len(counted) == classes:
        rows = scores + 1e-9
        rows /= rows.sum(axis=1, keepdims=True)
        assert auc(rows, positive) == pytest.approx(roc_auc_score(labels, rows, multi_class="ovr"), abs=1e-12)


def test_r2() -> None:
    y = np.array([[1.0], [2.0], [3.0]])
    assert Values(y, y).r2() == 1.0
    assert Values(np.full((3, 1), 2.0), y).r2() == 0.0
    assert Values(np.array([[1.0], [2.0], [4.0]]), y).r2() == 0.5
    assert Values(y, np.ones((3, 1))).r2() is None


@given(SEEDS, st.integers(2, 30), st.integers(1, 3))
def test_r2_is_that_of_scikit_learn(seed: int, examples: int, outputs: int) -> None:
    y, predicted = np.random.default_rng(seed).normal(size=(2, examples, outputs))
    assert Values(predicted, y).r2() == pytest.approx(r2_score(y, predicted), rel=1e-9, abs=1e-9)
