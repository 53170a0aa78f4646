"""Parquet files, converted to stores."""

import os
import pickle
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odt_sim.data import by_user, federate, find_leakage
from odt_sim.data.dataset import digest_of
from odt_sim.data.devices.drift import rotation
from odt_sim.data.sources.parquet_files import parquet
from odt_sim.data.sources.tables import table
from odt_sim.data.store.columns import is_mapped
from odt_sim.errors import ConfigurationError, DataError

pytestmark = pytest.mark.filterwarnings("ignore:data .* left out non-numeric columns")

ROWS = {
    "who": ["bo", "al", "bo", "al"],
    "age": [1, 2, 3, 4],
    "weight": [0.5, 1.5, 2.5, 3.5],
    "kind": ["yes", "no", "yes", "yes"],
}


@pytest.fixture
def stores(tmp_path):
    return str(tmp_path / "stores")


@pytest.fixture
def people(tmp_path):
    """A table in two row groups."""
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table(ROWS), path, row_group_size=3)
    return path


def test_parquet_equals_the_table_in_memory(people, stores):
    mapped, loaded = parquet(people, "kind", "who", store=stores), table(people, "kind", "who")
    for name in ("x", "y", "users"):
        np.testing.assert_array_equal(getattr(mapped, name), getattr(loaded, name))
        assert getattr(mapped, name).dtype == getattr(loaded, name).dtype
    assert (mapped.classes, mapped.name) == (2, "people")
    assert parquet(people, "weight", features=["age"], store=stores).y.tolist() == [0.5, 1.5, 2.5, 3.5]


def test_index_of_pandas_and_text_are_no_features(tmp_path, stores):
    path = tmp_path / "people.parquet"
    pd.DataFrame({**ROWS, "note": list("abcd")}, index=[7, 3, 5, 1]).to_parquet(path)
    with pytest.warns(
        UserWarning, match=r"people\.parquet: left out non-numeric columns: note; correct or encode them"
    ):
        mapped = parquet(path, "kind", "who", store=stores)
    np.testing.assert_array_equal(mapped.x[:], np.transpose([ROWS["age"], ROWS["weight"]]).astype(np.float32))


def test_lists_and_tensors_become_further_axes(tmp_path, stores):
    images = np.arange(24, dtype=np.uint8).reshape(3, 4, 2)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(images.astype(np.float32))
    columns = {"pixels": pa.array(images.tolist(), pa.list_(pa.list_(pa.uint8()))), "tensor": tensors, "y": [0, 1, 0]}
    path = tmp_path / "images.parquet"
    pq.write_table(pa.table({**columns, "one_hot": [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]}), path)
    np.testing.assert_allclose(parquet(path, "y", features="pixels", store=stores).x[..., 0], images / 255, rtol=1e-6)
    np.testing.assert_array_equal(parquet(path, "y", features=["tensor"], store=stores).x[:], images)
    hot = parquet(path, "one_hot", features="tensor", classes=2, store=stores)
    assert hot.labels().tolist() == [0, 1, 0]


def test_mappings_give_several_inputs_and_targets(people, stores):
    found = parquet(
        people, {"kind": "kind", "mass": "weight"}, "who", {"id": "age", "wide": ["age", "age"]}, None, None, stores
    )
    assert {name: array.tolist() for name, array in found.x.items()} == {
        "id": [1, 2, 3, 4],
        "wide": [[1, 1], [2, 2], [3, 3], [4, 4]],
    }
    assert found.classes == {"kind": 2, "mass": None}


def test_folders_of_a_partition_give_a_column(tmp_path, stores):
    for user, ages in ((7, [1, 2]), (3, [5])):
        (tmp_path / "data" / f"user={user}").mkdir(parents=True)
        pq.write_table(pa.table({"age": ages, "y": [0] * len(ages)}), tmp_path / "data" / f"user={user}" / "a.parquet")
    found = parquet(tmp_path / "data", "y", "user", store=stores)
    assert (found.x.tolist(), found.users.tolist()) == ([[5], [1], [2]], [3, 7, 7])


@pytest.mark.parametrize(
    ("written", "users"), [(("007", "7"), ["007", "7"]), (("0x10", "16"), ["0x10", "16"]), (("-7", "0"), [-7, 0])]
)
def test_users_of_folders_stay_as_written(tmp_path, stores, written, users):
    folder = tmp_path / "user=01"  # a folder above the data, which must not become a user
    for user in written:
        (folder / "day=3" / f"user={user}").mkdir(parents=True)
        pq.write_table(pa.table({"age": [1], "y": [0]}), folder / "day=3" / f"user={user}" / "a.parquet")
    found = parquet(folder, "y", "user", store=stores)
    assert (found.x.tolist(), found.users.tolist()) == ([[1, 3], [1, 3]], users)


def test_dates_are_times(tmp_path, stores):
    path = tmp_path / "days.parquet"
    pq.write_table(pa.table({"day": pa.array([0, 86_400], pa.timestamp("s")), "x": [1.0, 2.0], "y": [0, 1]}), path)
    assert parquet(path, "y", features=["x"], times="day", store=stores).times.tolist() == [0, 86_400 * 10**9]


def test_times_that_are_no_dates_are_refused(tmp_path, stores):
    path = tmp_path / "hours.parquet"
    pq.write_table(pa.table({"hour": pa.array([1, 2], pa.time64("us")), "x": [1.0, 2.0], "y": [0, 1]}), path)
    with pytest.raises(DataError, match=r"hours.parquet: cannot be read \(Unsupported cast from time64"):
        parquet(path, "y", features=["x"], times="hour", store=stores)


def test_dates_as_texts_are_refused_with_advice(tmp_path, stores):
    path = tmp_path / "visits.parquet"
    pq.write_table(pa.table({"day": ["2025-03-31", "2025-04-01"], "x": [1.0, 2.0], "y": [0, 1]}), path)
    with pytest.raises(DataError, match=r"column 'day' contains text such as 2025-03-31, .*to_datetime"):
        parquet(path, "y", features=["x"], times="day", store=stores)


def test_second_use_maps_the_same_files(people, stores):
    first, second = parquet(people, "kind", "who", store=stores), parquet(people, "kind", "who", store=stores)
    assert first.x.path == second.x.path
    assert is_mapped(second.y)
    os.utime(people, ns=(1, 1))
    assert parquet(people, "kind", "who", store=stores).x.path != first.x.path


def test_damaged_store_is_written_again(people, stores):
    path = parquet(people, "kind", store=stores).x.path
    path.write_bytes(path.read_bytes()[:-8])
    assert parquet(people, "kind", store=stores).x[3].tolist() == [4, 3.5]
    assert [each.suffix for each in path.parent.parent.iterdir() if each.is_file()] == [".lock"]


def test_mapped_arrays_pickle_as_paths_and_rows_as_values(people, stores):
    x = parquet(people, "kind", store=stores).x
    again = pickle.loads(pickle.dumps(x, 5))
    assert (again.path, again.digest, again.tolist()) == (x.path, x.digest, x.tolist())
    assert type(x[[0]]) is np.ndarray
    part = pickle.loads(pickle.dumps(x.reshape(-1), 5))
    assert part.tolist() == x.ravel().tolist()
    assert digest_of(x) == digest_of(again) != digest_of(x * 2)
    x.path.unlink()
    with pytest.raises(DataError, match=r"x\.npy: cannot be opened on this machine"):
        pickle.loads(pickle.dumps(again))


def test_devices_take_rows_of_the_store(tmp_path, stores):
    rows = {"x": np.arange(60.0), "y": np.arange(60) % 2, "user": np.arange(60) % 3}
    pq.write_table(pa.table(rows), tmp_path / "many.parquet")
    data = federate(parquet(tmp_path / "many.parquet", "y", "user", store=stores), by_user, None, 0)
    same = federate(table(tmp_path / "many.parquet", "y", "user"), by_user, None, 0)
    assert is_mapped(data.x)
    assert len(pickle.dumps(data)) < 4000
    np.testing.assert_array_equal(data.indices, same.indices)
    assert find_leakage(data) == find_leakage(same)
    with pytest.raises(DataError, match="expected images"):
        rotation(data, 0)


def test_drift_of_a_store_is_refused(tmp_path, stores):
    images = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((6, 2, 2, 1), np.float32))
    pq.write_table(pa.table({"x": images, "y": [0, 1] * 3}), tmp_path / "i.parquet")
    data = federate(
        parquet(tmp_path / "i.parquet", "y", features="x", store=stores), lambda *_: [[0, 1, 2], [3, 4, 5]], 2, 0
    )
    with pytest.raises(
        DataError, match="is stored on disk, but a drift copies all images into memory; choose drift=none"
    ):
        rotation(data, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("size",), "has no column 'size'; found: who, age, weight, kind"),
        (("kind", "owner"), "has no column 'owner'"),
        (("kind", "weight"), "users is float64"),
        (("kind", None, ["who", "age"]), "rows 0..3: column 'who' is not a column of numbers"),
    ],
)
def test_wrong_columns_are_refused(people, stores, arguments, message):
    with pytest.raises(DataError, match=message):
        parquet(people, *arguments, store=stores)


def test_target_is_no_feature(people, stores):
    with pytest.raises(ConfigurationError, match="contains the target 'age'"):
        parquet(people, "age", features=["age", "weight"], store=stores)
    for empty in ([], {}):
        with pytest.raises(ConfigurationError, match=r"^data\.features: expected at least one column, found "):
            parquet(people, "age", features=empty, store=stores)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0], [1.0, 2.0]], "column 'x' has lists of 1 to 2 values, expected equal lengths; pad or cut them"),
        ([[1.0], None], r"rows 0\.\.1: column 'x' has missing values; fill or remove those rows"),
        ([[1.0], [float("nan")]], r"rows 0\.\.1: column 'x' has 1 value that is NaN or infinite"),
    ],
)
def test_unusable_rows_are_refused_and_leave_no_store(tmp_path, stores, values, message):
    pq.write_table(pa.table({"x": values, "y": [0, 1]}), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=message):
        parquet(tmp_path / "bad.parquet", "y", features="x", store=stores)
    assert [each.suffix for each in (tmp_path / "stores").iterdir()] == [".lock"]


def test_unreadable_files_are_refused(tmp_path, stores, people, monkeypatch):
    with pytest.raises(DataError, match=r"none: no Parquet file found; give the path of one, or of a folder"):
        parquet(tmp_path / "none", "y", store=stores)
    (tmp_path / "bad.parquet").write_text("text")
    with pytest.raises(DataError, match=r"bad\.parquet: cannot be read .*; write it again"):
        parquet(tmp_path / "bad.parquet", "y", store=stores)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be stored in .*set data\.store to another folder"):
        parquet(people, "kind", store=str(tmp_path / "file"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"Parquet files need pyarrow .*pip install 'odt_sim\[tables\]'"):
        parquet(people, "kind", store=stores)
