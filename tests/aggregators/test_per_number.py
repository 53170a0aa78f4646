"""Median and trimmed mean: known answers, scipy's, and bounds against hostile devices."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import trim_mean

from odt_sim.aggregators import Median, TrimmedMean
from odt_sim.aggregators.stacked import PIECE, hostile_devices
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.weights import Layout, Weights

ROWS = ([1.0, 10.0], [2.0, -30.0], [4.0, 20.0], [900.0, 25.0], [3.0, 21.0])


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Any, Any]:
    """Honest rows, and fewer arbitrary hostile ones."""
    honest = draw(st.integers(2, 9))
    hostile = draw(st.integers(0, honest - 1))
    numbers = arrays(np.float32, (honest, 3), elements=st.floats(-100, 100, width=32))
    anything = arrays(np.float32, (hostile, 3), elements=st.floats(-(2.0**127), 2.0**127, width=32))
    return draw(numbers), draw(anything)


def test_known_answers(combined: Any) -> None:
    np.testing.assert_array_equal(combined(Median(), *ROWS), [3, 20])
    np.testing.assert_array_equal(combined(Median(), *ROWS[:4]), [3, 15])  # of four the two in the middle
    np.testing.assert_array_equal(combined(TrimmedMean(0.2), *ROWS), [3, 17])  # one of five at either end
    np.testing.assert_array_equal(combined(TrimmedMean(0.4), *ROWS), [3, 20])
    np.testing.assert_array_equal(combined(TrimmedMean(0.1), *ROWS), [3, 17])  # rounded up


def test_share_that_is_a_whole_number_is_not_rounded_up() -> None:
    assert [hostile_devices(*given) for given in ((0.07, 100), (0.14, 50), (0.2, 5), (0.2, 4))] == [7, 7, 1, 1]


@given(given=rounds())
def test_result_stays_in_the_range_of_honest_devices(combined: Any, given: tuple[Any, Any]) -> None:
    honest, hostile = given
    low, high = honest.min(axis=0), honest.max(axis=0)
    rules: list[Any] = [Median()]
    if len(honest) - len(hostile) > 0:
        rules.append(TrimmedMean(min(len(hostile) / (len(honest) + len(hostile)), 0.499)))
    for rule in rules:
        found = combined(rule, *hostile, *honest)
        assert (found >= low - 1e-5).all(), type(rule)
        assert (found <= high + 1e-5).all(), type(rule)


@given(given=rounds(), fraction=st.sampled_from([0, 0.2, 0.25, 0.4]))
def test_agree_with_numpy_and_scipy(combined: Any, given: tuple[Any, Any], fraction: float) -> None:
    rows = given[0]
    np.testing.assert_allclose(combined(Median(), *rows), np.median(rows, axis=0), rtol=1e-6)
    trimmed = int(np.ceil(round(fraction * len(rows), 9)))
    if 2 * trimmed < len(rows):
        expected = trim_mean(rows.astype(np.float64), (trimmed + 0.5) / len(rows), axis=0)  # which rounds down
        np.testing.assert_allclose(combined(TrimmedMean(fraction), *rows), expected, rtol=1e-6, atol=1e-5)


def test_zero_trimming_equals_unweighted_mean(combined: Any) -> None:
    np.testing.assert_allclose(combined(TrimmedMean(0), *ROWS), np.mean(ROWS, axis=0), rtol=1e-6)


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1])
def test_pieces_join_to_tensors_of_any_kind_and_shape(single: Any, size: int) -> None:
    random = np.random.default_rng(0)
    layout = Layout((Parameter("w", (size,), "float32", "trainable", "body"),))
    vectors = random.normal(size=(3, size)).astype(np.float32)
    rows = [{"v": random.normal(size=(2, 3)), "c": i} for i in range(3)]
    updates = single(*rows)
    for id, update in updates.each.items():
        update.tensors["w"] = Weights(layout, vectors[id])
    mean = Median().combine(updates, 3, random).mean
    np.testing.assert_array_equal(mean["w"].vector, np.median(vectors, axis=0))
    assert (mean["v"].shape, mean["c"].shape, float(mean["c"])) == ((2, 3), (), 1.0)


def test_different_tensors_are_refused(single: Any) -> None:
    message = (
        "device 1 sent v [2], but device 0 sent v [1]; send the same tensors from all devices, or choose aggregator="
    )
    with pytest.raises(StrategyError, match=re.escape(message)):
        Median().combine(single([1.0], [1.0, 2.0]), 2, np.random.default_rng(0))
    with pytest.raises(StrategyError, match=r"device 1 sent other \[1\], v \[1\], but device 0 sent v \[1\]"):
        Median().combine(single([1.0], {"other": [2.0], "v": [1.0]}), 2, np.random.default_rng(0))


@pytest.mark.parametrize("fraction", [-0.1, 0.5, float("nan"), "much"])
def test_fraction_out_of_range(fraction: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"aggregator\.hostile: expected a number of at least 0 and below 0\.5"
    ):
        TrimmedMean(fraction)


def test_trimming_all_is_refused() -> None:
    TrimmedMean(0.4).check(5)
    with pytest.raises(ConfigurationError, match="trimmed_mean: of 4 updates it trims 2 at either end, so none remain"):
        TrimmedMean(0.4).check(4)
