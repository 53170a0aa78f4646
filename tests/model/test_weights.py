"""Weights: one vector, named views, and arithmetic on it."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odt_sim import Weights
from odt_sim.errors import ModelError
from odt_sim.model.contract.manifest import Parameter
from odt_sim.model.weights import Layout, exceeds, is_finite, surely_below

KERNEL, BIAS, SCALE = Parameter("kernel", (2, 3)), Parameter("bias", (3,), group="head"), Parameter("scale", ())
LAYOUT = Layout((KERNEL, BIAS, SCALE))


def counted(layout: Layout = LAYOUT) -> Weights:
    return Weights(layout, np.arange(layout.size, dtype=np.float32))


def test_layout_places_parameters_consecutively() -> None:
    assert LAYOUT.names == ("kernel", "bias", "scale")
    assert LAYOUT.size == 10
    assert LAYOUT.slices == {"kernel": slice(0, 6), "bias": slice(6, 9), "scale": slice(9, 10)}
    assert LAYOUT.shapes == {"kernel": (2, 3), "bias": (3,), "scale": ()}


def test_repr_is_one_line() -> None:
    assert repr(counted()) == "Weights(10 floats of 3 parameters)"


def test_layout_selects_in_order() -> None:
    assert LAYOUT.select(lambda p: p.group == "head") == Layout((BIAS,))
    assert LAYOUT.select(lambda p: p.name != "bias") == Layout((KERNEL, SCALE))
    assert LAYOUT.select(lambda p: False).size == 0


def test_tensors_are_views_in_order() -> None:
    weights = counted()
    kernel, bias, scale = weights.tensors()
    np.testing.assert_array_equal(kernel, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(bias, [6, 7, 8])
    assert scale.shape == ()
    assert scale == 9
    assert all(np.shares_memory(tensor, weights.vector) for tensor in weights.tensors())
    weights["bias"][:] = -1
    np.testing.assert_array_equal(weights.vector, [0, 1, 2, 3, 4, 5, -1, -1, -1, 9])


def test_from_tensors_copies() -> None:
    tensors = [np.ones((2, 3), np.float32), np.full(3, 2, np.float32), np.float32(3)]
    weights = Weights.from_tensors(LAYOUT, tensors)
    np.testing.assert_array_equal(weights.vector, [1] * 6 + [2] * 3 + [3])
    assert not any(np.shares_memory(tensor, weights.vector) for tensor in tensors)
    assert Weights.from_tensors(Layout(()), []).vector.shape == (0,)


def test_sum_adds_weights() -> None:
    weights = counted()
    np.testing.assert_array_equal(sum([weights, weights, weights]).vector, 3 * np.arange(10))  # type: ignore[union-attr]
    assert not np.shares_memory(sum([weights]).vector, weights.vector)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("calculate", "message"),
    [
        (lambda w: w * w, r"unsupported operand type\(s\) for \*: 'Weights' and 'Weights'"),
        (lambda w: w / w, r"unsupported operand type\(s\) for /: 'Weights' and 'Weights'"),
        (lambda w: w * None, r"unsupported operand type\(s\) for \*: 'Weights' and 'NoneType'"),
        (lambda w: w + 1, r"unsupported operand type\(s\) for \+: 'Weights' and 'int'"),
        (lambda w: 1 + w, r"unsupported operand type\(s\) for \+: 'int' and 'Weights'"),
        (lambda w: w - 0.5, r"unsupported operand type\(s\) for -: 'Weights' and 'float'"),
    ],
)
def test_unsupported_operands_are_named(calculate: Callable[[Weights], object], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        calculate(counted())


def test_arithmetic() -> None:
    weights, ones = counted(), Weights(LAYOUT, np.ones(10, np.float32))
    known = np.arange(10, dtype=np.float32)
    for result, expected in [
        (weights + ones, known + 1),
        (weights - ones, known - 1),
        (weights * 0.5, known / 2),
        (0.5 * weights, known / 2),
        (np.float64(0.5) * weights, known / 2),
        (weights / 4, known / 4),
        (-weights, -known),
        (Weights.zeros(LAYOUT), np.zeros(10)),
    ]:
        assert isinstance(result, Weights)
        assert result.layout == LAYOUT
        assert result.vector.dtype == np.float32
        np.testing.assert_array_equal(result.vector, expected)
    np.testing.assert_array_equal(weights.vector, known)


@pytest.mark.parametrize(("value", "finite"), [(0.0, True), (np.nan, False), (np.inf, False), (-np.inf, False)])
def test_isfinite(value: float, finite: bool) -> None:
    weights = counted()
    weights.vector[4] = value
    assert weights.isfinite() is finite


def test_large_values_are_finite() -> None:
    weights = counted()
    weights.vector[:] = np.finfo(np.float32).max
    assert weights.isfinite()
    assert is_finite(np.array([np.finfo(np.float64).max] * 2))
    assert is_finite(np.array([2**62, 2**62]))
    assert is_finite(np.zeros(0, np.float32))
    assert not is_finite(np.array([1.0, np.nan], np.float16))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64])
def test_norm_of_several_arrays_is_joint(kind: type[np.number]) -> None:
    arrays = [np.array([[3], [0]], kind), np.array(4, kind), np.zeros(0, kind)]
    assert [exceeds(arrays, limit) for limit in (4.9, 5.0, 5.1, 100.0)] == [True, False, False, False]


@pytest.mark.parametrize(
    ("values", "below"),
    [([3.0, 4.0], True), ([3.0, 4.1], False), ([np.nan], False), ([np.inf], False), ([1e30], False), ([], True)],
)
def test_fast_pass_proves_that_a_norm_is_small(values: list[float], below: bool) -> None:
    assert surely_below([np.array(values[:1], np.float32), np.array(values[1:], np.float32)], 5.05) is below


def test_fast_pass_proves_nothing_about_integers() -> None:
    assert not surely_below([np.array([1])], 5.0)


def test_norm_with_overflowing_square() -> None:
    large = np.array([3e30, 4e30], np.float32)
    assert exceeds([large], 4.9e30)
    assert not exceeds([large], 5.1e30)
    assert exceeds([np.array([1e300, 1e300])], 1e6)
    assert not exceeds([], 1e-9)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    shapes = draw(st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), max_size=6))
    return Layout(tuple(Parameter(f"p{i}", shape) for i, shape in enumerate(shapes)))


@given(layouts(), st.sets(st.integers(0, 5)))
def test_select_and_replace_round_trip(layout: Layout, chosen: set[int]) -> None:
    weights = counted(layout)
    names = {f"p{i}" for i in chosen}
    some, rest = layout.select(lambda p: p.name in names), layout.select(lambda p: p.name not in names)
    assert some.size + rest.size == layout.size
    put_back = Weights.zeros(layout).replace(weights.select(some)).replace(weights.select(rest))
    np.testing.assert_array_equal(put_back.vector, weights.vector)
    changed = weights.replace(Weights.zeros(some))
    assert not changed.select(some).vector.any()
    np.testing.assert_array_equal(changed.select(rest).vector, weights.select(rest).vector)
    for part in (weights.select(some), weights.select(layout), changed):
        assert not np.shares_memory(part.vector, weights.vector)


def test_read_only_weights_are_not_copied() -> None:
    weights, other = counted(), counted()
    weights.vector.flags.writeable = False
    assert weights.select(LAYOUT) is weights
    assert other.replace(weights) is weights
    assert other.select(LAYOUT) is not other
    part = weights.select(Layout((BIAS,)))
    part.vector[:] = 0
    np.testing.assert_array_equal(weights.vector, counted().vector)


def test_select_uses_the_order_of_the_layout() -> None:
    reordered = counted().select(Layout((SCALE, BIAS)))
    np.testing.assert_array_equal(reordered.vector, [9, 6, 7, 8])
    np.testing.assert_array_equal(counted().replace(reordered * 0).vector, [0, 1, 2, 3, 4, 5, 0, 0, 0, 0])


def test_layout_is_unpickled_once() -> None:
    one, other = (pickle.loads(pickle.dumps(LAYOUT)) for _ in range(2))
    assert one == LAYOUT
    assert one is other


def test_pickles() -> None:
    again = pickle.loads(pickle.dumps(counted()))
    assert again.layout == LAYOUT
    np.testing.assert_array_equal(again.vector, counted().vector)


def test_errors_name_the_difference() -> None:
    weights = counted()
    other = Layout((Parameter("kernel", (3, 2)),))
    with pytest.raises(ModelError, match=r"expected a float32 vector of \[10\].*found float32 \[9\]"):
        Weights(LAYOUT, np.zeros(9, np.float32))
    with pytest.raises(ModelError, match=r"found float64 \[10\]; convert it by \.astype\(np\.float32\)"):
        Weights(LAYOUT, np.zeros(10))
    with pytest.raises(ModelError, match="no parameter 'gamma'; expected one of kernel, bias, scale"):
        weights["gamma"]
    with pytest.raises(ModelError, match="no parameter 'gamma'"):
        weights.select(Layout((Parameter("gamma", ()),)))
    with pytest.raises(ModelError, match=r"kernel: expected \[2, 3\], found \[3, 2\]"):
        weights.replace(Weights.zeros(other))
    with pytest.raises(ModelError, match=r"kernel: expected \[2, 3\], found \[3, 2\]"):
        weights.select(other)
    with pytest.raises(ModelError, match="cannot combine 3 parameters of 10 floats with 1 of 6"):
        weights + Weights.zeros(other)
    with pytest.raises(ModelError, match="expected 3 tensors, found 1"):
        Weights.from_tensors(LAYOUT, [np.zeros((2, 3), np.float32)])
    with pytest.raises(ModelError, match=r"bias: expected float32 \[3\], found float64 \[3\]"):
        Weights.from_tensors(LAYOUT, [np.zeros((2, 3), np.float32), np.zeros(3), np.float32(0)])
