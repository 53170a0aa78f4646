import sys

import numpy as np
import pytest

from odt_sim.data.sources.tables import data_frame, table
from odt_sim.errors import ConfigurationError, DataError

pytestmark = pytest.mark.filterwarnings("ignore:data .* left out non-numeric columns")

TEXT = "who,age,weight,note,kind\nbo,1,0.5,a,yes\nal,2,1.5,b,no\nbo,3,2.5,c,yes\n"


@pytest.fixture
def csv(tmp_path):
    (tmp_path / "people.csv").write_text(TEXT)
    return tmp_path / "people.csv"


@pytest.fixture(params=["csv", "parquet"])
def path(request, csv):
    """The same table in both formats."""
    import pandas as pd

    if request.param == "parquet":
        pd.read_csv(csv).to_parquet(csv.with_suffix(".parquet"))
    return csv.with_suffix(f".{request.param}")


def test_table_is_read(path):
    dataset = table(path, "kind", "who")
    assert dataset.x.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
    assert (dataset.y.tolist(), dataset.classes, dataset.class_names) == ([1, 0, 1], 2, ("no", "yes"))
    assert (table(path, "kind", "who", classes=3).class_names, table(path, "age").class_names) == ((), ())
    assert dataset.users.tolist() == ["bo", "al", "bo"]
    assert (dataset.name, dataset.x.dtype) == ("people", np.float32)


def test_named_classes_keep_their_numbers(path):
    dataset = table(path, "kind", "who", classes=["yes", "maybe", "no"])
    assert (dataset.y.tolist(), dataset.classes) == ([0, 2, 0], 3)
    with pytest.raises(DataError, match=r"people\.\w+: found the class 'no', expected one of yes; append it to"):
        table(path, "kind", "who", classes=["yes"])
    with pytest.raises(ConfigurationError, match=r"names of classes need one target of texts, found \['yes'\]"):
        table(path, "age", "who", classes=["yes"])


def test_columns_that_are_left_out_are_named(path):
    with pytest.warns(UserWarning, match=r"people\.\w+: left out non-numeric columns: note; correct or encode them"):
        table(path, "kind", "who")


def test_first_column_without_a_name_is_no_feature(csv):
    import pandas as pd

    pd.read_csv(csv).to_csv(csv)  # with its index
    assert csv.read_text().startswith(",who,age")
    assert table(csv, "kind", "who").x.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]


def test_later_column_without_a_name_is_named_as_left_out(csv):
    csv.write_text(csv.read_text().replace("age", "", 1))
    with pytest.warns(UserWarning, match=r"left out columns without a name: Unnamed: 1; name them in the file, or"):
        assert table(csv, "kind", "who").x.tolist() == [[0.5], [1.5], [2.5]]


@pytest.mark.parametrize(
    ("written", "users"),
    [
        (("007", "7", "12"), ["007", "7", "12"]),
        (("1e5", "100000", "2"), ["1e5", "100000", "2"]),
        (("true", "True", "2"), ["true", "True", "2"]),
        (("10", " 9", "-1"), [10, 9, -1]),
    ],
)
def test_ids_of_a_csv_file_stay_as_written(csv, written, users):
    csv.write_text("who,age,kind\n" + "".join(f"{id},1,0\n" for id in written))
    assert table(csv, "kind", "who").users.tolist() == users


def test_target_column_determines_the_task(path):
    values = table(path, "weight", features=["age"])
    assert (values.y.tolist(), values.classes, values.users) == ([0.5, 1.5, 2.5], None, None)
    labels = table(path, "age", "who", ["weight"], classes=5)
    assert (labels.y.tolist(), labels.classes, labels.x.tolist()) == ([1, 2, 3], 5, [[0.5], [1.5], [2.5]])


def test_columns_form_several_inputs_and_targets(path):
    """One column keeps its type, as ids need; a list of columns is one array."""
    dataset = table(path, {"kind": "kind", "mass": "weight"}, "who", {"id": "age", "wide": ["age", "age"]}, {"kind": 3})
    assert [(name, array.tolist()) for name, array in dataset.x.items()] == [
        ("id", [1, 2, 3]),
        ("wide", [[1, 1], [2, 2], [3, 3]]),
    ]
    assert [str(array.dtype) for array in dataset.x.arrays] == ["int32", "float32"]
    assert [array.tolist() for array in dataset.y.arrays] == [[1, 0, 1], [0.5, 1.5, 2.5]]
    assert dataset.classes == {"kind": 3, "mass": None}
    values = table(path, ["weight"])
    assert values.y.tolist() == [[0.5], [1.5], [2.5]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("size",), "has no column 'size'; found: who, age, weight, note, kind"),
        (("kind", "owner"), "has no column 'owner'"),
        (("kind", "who", ["note"]), "feature 'note' is not numeric"),
        ((["age", "note"],), "feature 'note' is not numeric"),
        (("kind", "who", {"id": "note"}), "feature 'note' is not numeric"),
    ],
)
def test_wrong_columns_are_refused(csv, arguments, message):
    with pytest.raises(DataError, match=message):
        table(csv, *arguments)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("age", r"^data\.features: expected a list of columns, found 'age'; write it as \[age\]$"),
        ([], r"^data\.features: expected at least one column, found \[\]; null uses all numeric ones$"),
        ({"x": []}, r"^data\.features: expected at least one column, found \{'x': \[\]\}; null"),
        (
            ["weight", "age"],
            r"^data\.features: contains the target 'age', which cannot be an input; leave it out, or for an",
        ),
    ],
)
def test_wrong_features_are_refused(csv, features, message):
    with pytest.raises(ConfigurationError, match=message):
        table(csv, "age", features=features)


@pytest.mark.parametrize("target", [[], {}, {"a": []}])
def test_target_without_columns_is_refused(csv, target):
    with pytest.raises(ConfigurationError, match=r"^data\.target: expected at least one column, found .*; name one$"):
        table(csv, target)


@pytest.mark.parametrize(("header", "found"), [("who,note,hue", "note, hue; encode"), ("who", "no other columns; add")])
def test_table_without_numeric_inputs_is_refused_with_its_columns(tmp_path, header, found):
    (tmp_path / "t.csv").write_text(f"{header},kind\n{header},1\n")
    with pytest.raises(DataError, match=rf"t\.csv: expected numeric columns in addition to .*, found {found}"):
        table(tmp_path / "t.csv", "kind", "who")


def test_missing_values_are_named(csv):
    csv.write_text("who,age,kind\nbo,1,yes\n,2,no\nbo,,yes\n")
    with pytest.raises(DataError, match="rows have missing values in 'who', 'age'; fill or remove them"):
        table(csv, "kind", "who")
    with pytest.raises(DataError, match="rows have missing values in 'age'; fill"):
        table(csv, "kind")


def test_table_without_rows_is_refused(csv):
    csv.write_text("age,kind\n")
    with pytest.raises(DataError, match=r"people\.csv: expected at least one row, found none; write the table again"):
        table(csv, "kind")


def test_unreadable_tables_are_refused(tmp_path, csv):
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        table(tmp_path / "none.csv", "kind")
    with pytest.raises(
        DataError, match=r"expected one table, found a folder; join its files, with a column for the user"
    ):
        table(tmp_path, "kind")
    with pytest.raises(DataError, match=r"expected a file that ends in \.csv or \.parquet"):
        table(tmp_path / "table.xls", "kind")
    for name, content in (("a.parquet", "text"), ("a.csv", "")):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=rf"{name}: cannot be read .*write it again"):
            table(tmp_path / name, "kind")
    (tmp_path / "b.csv").write_text("a,kind\n1,x\n", encoding="utf-16")
    with pytest.raises(DataError, match=r"b\.csv: is not UTF-8 text \(byte 0\); save it as UTF-8$"):
        table(tmp_path / "b.csv", "kind")


def test_missing_pandas_names_the_extra(csv, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DataError, match=r"a table needs pandas .*pip install 'odt_sim\[tables\]'"):
        table(csv, "kind")


def test_columns_of_one_name_are_refused():
    import pandas as pd

    frame = pd.DataFrame([[0.5, 1.5, 0], [2.5, 3.5, 1]], columns=["a", "a", "y"])
    for settings in ({}, {"features": ["a"]}):
        with pytest.raises(
            DataError, match=r"^data data_frame: has several columns named 'a'; rename or drop all but one$"
        ):
            data_frame(frame, "y", **settings)


def test_frame_equals_its_file(csv):
    import pandas as pd

    frame, loaded = data_frame(pd.read_csv(csv), "kind", "who"), table(csv, "kind", "who")
    assert (frame.x.tolist(), frame.y.tolist(), frame.users.tolist()) == (
        loaded.x.tolist(),
        loaded.y.tolist(),
        loaded.users.tolist(),
    )
    assert frame.name == "data_frame"
    with pytest.raises(DataError, match="data people: has no column 'size'"):
        data_frame(pd.read_csv(csv), "size", name="people")
    with pytest.raises(DataError, match="expected a pandas DataFrame, found a dict"):
        data_frame({}, "kind")


def test_table_may_be_standardized_by_device(csv):
    assert [table(csv, "kind", standardize=by).standardize for by in (False, True)] == [False, True]
