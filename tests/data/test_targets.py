import numpy as np
import pytest

from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import as_targets, check, check_against
from odt_sim.errors import DataError

X = np.zeros((3, 2), np.float32)


def test_one_value_an_example_gets_an_axis_where_the_model_has_one():
    y = np.float32([0.5, 1, 2])
    assert as_targets(y, (1,), "float32").tolist() == [[0.5], [1], [2]]
    assert as_targets(y, (), "float32") is y
    assert as_targets(y, (3,), "float32") is y


@pytest.mark.parametrize("kind", [np.int32, np.uint8, bool])
def test_labels_of_two_classes_become_floats_where_the_model_takes_floats(kind):
    found = as_targets(np.array([0, 1, 1], kind), (1,), "float32")
    assert (found.dtype, found.tolist()) == (np.float32, [[0], [1], [1]])


def test_labels_of_more_classes_stay_what_they_are():
    y = np.array([0, 1, 2], np.int32)
    assert as_targets(y, (), "float32") is y
    assert as_targets(y, (), "int32") is y


def test_data_passes_the_check_in_the_same_way():
    check_against(check(Dataset("values", X, np.array([0.5, 1, 2]))), (2,), "float32", (1,), "float32", None)
    check_against(check(Dataset("labels", X, np.array([0, 1, 1]))), (2,), "float32", (1,), "float32", None)
    with pytest.raises(DataError, match="data classes: y has dtype int32, the model's train signature takes float32"):
        check_against(check(Dataset("classes", X, np.array([0, 1, 2]))), (2,), "float32", (1,), "float32", None)
