import numpy as np
import pytest

from odt_sim.data.converters import hugging_face
from odt_sim.errors import DataError


@pytest.fixture
def rows():
    """The library's own data set, where it is installed."""
    datasets = pytest.importorskip("datasets", reason="needs pip install datasets")
    columns = {
        "image": datasets.List(datasets.List(datasets.Value("uint8"))),
        "label": datasets.ClassLabel(names=["a", "b", "c"]),
        "writer": datasets.Value("string"),
        "text": datasets.Value("string"),
    }
    features = datasets.Features(columns)
    images = [[[0, 255], [51, 102]], [[1, 2], [3, 4]]]
    values = {"image": images, "label": [1, 0], "writer": ["bo", "al"], "text": ["x", "y"]}
    table = datasets.table.InMemoryTable.from_pydict(values, schema=features.arrow_schema)
    return datasets.Dataset(table, datasets.DatasetInfo(features=features), fingerprint="mine")  # hashes nothing


def test_columns_become_a_data_set(rows):
    dataset = hugging_face(rows, "image", "label", "writer")
    np.testing.assert_allclose(dataset.x[0, :, :, 0], [[0, 1], [0.2, 0.4]])
    assert (dataset.y.tolist(), dataset.classes) == ([1, 0], 3)
    assert dataset.users.tolist() == ["bo", "al"]


def test_a_column_that_is_not_there(rows):
    with pytest.raises(DataError, match="has no column 'pixels'; there are: image, label, writer, text"):
        hugging_face(rows, "pixels", "label")
    with pytest.raises(DataError, match="x has dtype"):
        hugging_face(rows, "text", "label")


def test_arrays_are_no_such_data_set():
    with pytest.raises(DataError, match=r"expected a datasets\.Dataset, found a dict"):
        hugging_face({}, "x", "y")
