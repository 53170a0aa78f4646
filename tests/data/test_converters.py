"""Conversion of Hugging Face and `tf.data` objects; a subprocess loads TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from odt_sim.data.sources.builtin import tf_data
from odt_sim.data.sources.hugging_face import hugging_face
from odt_sim.errors import DataError
from odt_sim.export.cache import QUIET


@pytest.fixture
def rows():
    """A data set of the library, if it is installed."""
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


def test_hugging_face_columns_become_a_data_set(rows):
    dataset = hugging_face(rows, "image", "label", "writer")
    np.testing.assert_allclose(dataset.x[0, :, :, 0], [[0, 1], [0.2, 0.4]])
    assert (dataset.y.tolist(), dataset.classes) == ([1, 0], 3)
    assert dataset.users.tolist() == ["bo", "al"]


def test_missing_hugging_face_column_is_refused(rows):
    with pytest.raises(DataError, match="has no column 'pixels'; found: image, label, writer, text"):
        hugging_face(rows, "pixels", "label")
    with pytest.raises(DataError, match="x has dtype"):
        hugging_face(rows, "text", "label")


def test_other_objects_are_not_hugging_face_data():
    with pytest.raises(DataError, match=r"expected a datasets\.Dataset, found a dict"):
        hugging_face({}, "x", "y")


PROGRAM = """
import numpy as np, tensorflow as tf
from odt_sim.data import tf_data
from odt_sim.errors import DataError

x, y, users = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([1, 0, 2]), np.array(["bo", "Zo\u00eb", "bo"])
def check(found, owners):
    assert found.x.tolist() == x.tolist() and found.y.tolist() == [1, 0, 2] and found.classes == 3
    assert (found.users is None and owners is None) or found.users.tolist() == owners

slices = tf.data.Dataset.from_tensor_slices
check(tf_data(slices((x, y))), None)
check(tf_data(slices((x, y, users))), ["bo", "Zo\u00eb", "bo"])
check(tf_data(slices({"image": x, "label": y, "writer": [5, 6, 5], "more": y}), "image", "label", "writer"), [5, 6, 5])
import odt_sim.data, sys, types
sys.modules["mine"] = types.SimpleNamespace(load=lambda: slices((x, y, users)))
check(odt_sim.data.function("mine.load"), ["bo", "Zo\u00eb", "bo"])
several = tf_data(slices(({"a": x, "b": y}, (y, x))))
assert several.x.names == ("a", "b") and several.x.arrays[1].tolist() == [1, 0, 2]
assert several.y.names == ("0", "1") and several.classes == {"0": 3, "1": None}
for wrong, message in (
    (slices((x, y)).repeat(), "is infinite; limit it:"),
    (slices((x, y)).batch(2), "expected elements (x, y) of one shape"),
    (slices({"image": x, "label": y}), "KeyError: 'x'"),
    (slices(x).take(0), "expected elements (x, y) of one shape"),
):
    try:
        tf_data(wrong)
    except DataError as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)
"""


@pytest.mark.slow
def test_tf_data_elements_become_a_data_set():
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_objects_are_not_tf_data():
    with pytest.raises(DataError, match=r"expected a tf\.data\.Dataset, found a ndarray"):
        tf_data(np.zeros(3))
