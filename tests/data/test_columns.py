"""Columns behave like an array of rows; sources, checks, splits and digests accept them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odt_sim.data import dirichlet, federate, function, iid, npz, rotation
from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.checks.leakage import find_leakage
from odt_sim.data.dataset import Dataset, digest_of
from odt_sim.data.store.columns import Columns, arrays_of, prefixed, rows_at
from odt_sim.errors import DataError

A, B = np.arange(12, dtype=np.int32).reshape(6, 2), np.linspace(0, 1, 6, dtype=np.float32)


def test_rows_are_selected_in_all_arrays() -> None:
    columns = Columns.of({"a": A, "b": B}, "x")
    assert len(columns) == 6
    for rows in (slice(1, 3), np.array([4, 0]), B > 0.5):
        assert [array.tolist() for array in columns[rows].arrays] == [A[rows].tolist(), B[rows].tolist()]
    assert not any(array.flags.writeable for array in columns.arrays)
    assert prefixed("x", columns).keys() == {"x_a", "x_b"}
    assert prefixed("x", B) == {"x": B}
    assert columns["b"].tolist() == B.tolist()
    with pytest.raises(KeyError, match="'c': expected one of a, b"):
        columns["c"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_at_positions_are_those_of_an_index(order: Any) -> None:
    array = np.arange(12).reshape(4, 3).copy(order)
    rows = rows_at(array, np.array([2, 0, 2]))
    np.testing.assert_array_equal(rows, [[6, 7, 8], [0, 1, 2], [6, 7, 8]])
    several = rows_at(Columns(("a", "b"), (array, array + 1)), np.array([1]))
    np.testing.assert_array_equal(several.column("b"), [[4, 5, 6]])  # type: ignore[union-attr]


def test_buffers_stay_out_of_the_pickle() -> None:
    """Ray shares them."""
    buffers: list[Any] = []
    content = pickle.dumps(Columns.of((A, B), "x"), protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 2
    again = pickle.loads(content, buffers=buffers)
    assert np.shares_memory(again.arrays[0], A)


def test_arrays_of_a_tuple_get_names_by_position() -> None:
    assert Columns.of((A, B), "x").named(("a", "b"), "x").names == ("a", "b")
    assert Columns.of({"b": B, "a": A}, "x").named(("a", "b"), "x").arrays[1] is not A
    with pytest.raises(DataError, match="x: expected the arrays a, b, found 3 without names; use the same names"):
        Columns.of((A, B, B), "x").named(("a", "b"), "x")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": A, "b": B[:5]}, r"x: lengths differ: a \[6, 2\], b \[5\]; each array needs one row per example"),
        ({}, "x: expected arrays by name, found none"),
        ({1: A}, "x: expected arrays by name, found 1"),
    ],
)
def test_unusable_columns_are_refused(values: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Columns.of(values, "x")


def test_digests_depend_on_names_and_values() -> None:
    digests = [
        digest_of(Columns.of(values, "x")) for values in ({"a": A, "b": B}, {"c": A, "b": B}, {"a": A, "b": B + 1})
    ]
    assert len(set(digests)) == 3
    assert digest_of(A, None, B) == digest_of(A, B)


def test_each_array_is_converted_like_one() -> None:
    pixels, classes = np.full((4, 2, 2), 255, np.uint8), np.array([0, 2, 1, 0])
    dataset = check(Dataset("d", {"image": pixels, "word": classes}, (classes, np.ones(4)), classes={"0": 5}))
    image, word = arrays_of(dataset.x).values()
    assert (image.shape, image.dtype, image.max(), word.dtype) == ((4, 2, 2, 1), np.float32, 1, np.int32)
    assert dataset.classes == {"0": 5, "1": None}
    assert dataset.labels().tolist() == [0, 2, 1, 0]


@pytest.mark.parametrize(
    ("x", "y", "classes", "message"),
    [
        ({"a": A, "b": [0.5] * 5 + [np.nan]}, B, None, "data d: x b has 1 value that is NaN"),
        ({"a": A, "b": ["word"] * 6}, B, None, "data d: x b has dtype <U4, expected numbers"),
        (A, {"k": np.arange(6), "v": B}, {"k": 3}, "data d: y k: 3 labels out of range, the first is 3"),
        (A, {"k": np.arange(6), "v": B}, {"w": 3}, "data d: classes names 'w'; the targets are k, v"),
        (A, {"k": np.arange(6), "v": B}, 3, "data d: classes is 3, expected a mapping for the targets k, v"),
        (A, B, {"k": 3}, "data d: classes names k, but y is a single array"),
        ({"a": A, "b": B}, B[:3], None, r"data d: lengths differ: x a \[6, 2\], x b \[6\], y \[3\]"),
    ],
)
def test_unusable_data_names_the_array(x: Any, y: Any, classes: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check(Dataset("d", x, y, classes=classes))


def test_label_skew_takes_the_first_target_with_labels() -> None:
    kinds = np.arange(60) % 3
    dataset = check(Dataset("d", np.zeros((60, 2)), {"size": np.ones(60), "kind": kinds}))
    found = dirichlet(dataset, 3, 0, alpha=0.5, min_examples=3)
    expected = dirichlet(check(Dataset("d", np.zeros((60, 2)), kinds)), 3, 0, alpha=0.5, min_examples=3)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    values = check(
        Dataset("d", np.zeros((60, 2)), {"size": np.ones(60), "tags": kinds.reshape(20, 3).repeat(3, axis=0)})
    )
    with pytest.raises(
        DataError,
        match=r"one class label for each example, found regression targets \(size\), labels of shape \[3\] \(tags\)",
    ):
        dirichlet(values, 3, 0, alpha=0.5)


def test_devices_standardize_the_inputs_of_floats() -> None:
    numbers = np.random.default_rng(0).normal(3, 2, (40, 2)).astype(np.float32)
    dataset = check(Dataset("d", {"n": numbers, "id": np.arange(40)}, np.arange(40) % 2, standardize=True))
    data = federate(dataset, iid, 2, 0)
    n, ids = arrays_of(data.x).values()
    np.testing.assert_allclose(n[data.train(1)].mean(axis=0), 0, atol=1e-6)
    assert ids.tolist() == list(range(40))


def test_leakage_compares_all_inputs() -> None:
    same, other = np.zeros((30, 2)), np.arange(30)
    dataset = check(Dataset("d", {"a": same, "b": other}, np.zeros(30, int)))
    assert find_leakage(federate(dataset, iid, 2, 0)).equal == 0
    equal = check(Dataset("d", {"a": same, "b": other * 0}, np.zeros(30, int)))
    assert find_leakage(federate(equal, iid, 2, 0)).equal == 12


def test_drifts_of_images_refuse_several_inputs() -> None:
    data = federate(check(Dataset("d", {"a": A, "b": B}, np.zeros(6, int))), iid, 1, 0)
    with pytest.raises(DataError, match="data d: x has the arrays a, b, expected a single array; choose another drift"):
        rotation(data, 0)


def test_npz_reads_the_arrays_of_a_prefix(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_user=A[:, 0], x_item=A[:, 1], y_stars=np.arange(6) % 3, y_price=B, who=np.arange(6))
    dataset = npz(tmp_path / "d.npz", users="who", classes={"stars": 5})
    assert {name: array.tolist() for name, array in arrays_of(dataset.x).items()} == {
        "user": A[:, 0].tolist(),
        "item": A[:, 1].tolist(),
    }
    assert dataset.classes == {"stars": 5, "price": None}
    with pytest.raises(DataError, match=r"d\.npz: has no array 'z'; found: x_user, x_item, y_stars"):
        npz(tmp_path / "d.npz", x="z")


def test_a_function_returns_tuples_or_mappings(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text(
        "import numpy as np\n"
        "def pairs():\n    return (np.zeros((4, 2)), np.ones((4, 3))), np.arange(4) % 2\n"
        "def named():\n    return {'x': {'a': np.zeros(4)}, 'y': {'k': np.arange(4)}, 'users': np.arange(4)}\n"
        "def other():\n    return {'x': np.zeros(4), 'labels': np.zeros(4)}\n"
    )
    assert [array.shape for array in arrays_of(function(f"{tmp_path}/source.py:pairs").x).values()] == [(4, 2), (4, 3)]
    named = function(f"{tmp_path}/source.py:named")
    assert (named.classes, len(named.users)) == ({"k": 4}, 4)
    with pytest.raises(
        DataError, match="other: returned a mapping of x, labels; expected the keys x, y, and optionally"
    ):
        function(f"{tmp_path}/source.py:other")
