"""In TensorFlow's own data sets; a process of its own keeps it out of the others."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from odt_sim.data.converters import tf_data
from odt_sim.errors import DataError
from odt_sim.export.cache import QUIET

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
for wrong, message in (
    (slices((x, y)).repeat(), "is infinite; take a number"),
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


def test_tensors_and_mappings_become_a_data_set():
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_arrays_are_no_tf_data():
    with pytest.raises(DataError, match=r"expected a tf\.data\.Dataset, found a ndarray"):
        tf_data(np.zeros(3))
