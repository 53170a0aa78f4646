import numpy as np
import pandas
import pytest

from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.checks.model_checks import as_targets
from odt_sim.data.checks.model_checks import check_against as check_tensors
from odt_sim.data.dataset import Dataset
from odt_sim.errors import DataError
from odt_sim.model.reading.flatbuffer import TensorInfo

X = np.float32([[1, 2], [3, 4], [5, 6]])
Y = np.array([0, 1, 2])


def check_against(data, x_shape, x_dtype, y_shape, y_dtype, classes):
    x, y = (TensorInfo("", (-1, *shape), str(np.dtype(t))) for shape, t in ((x_shape, x_dtype), (y_shape, y_dtype)))
    check_tensors(data, {"": x}, {"": y}, {"": classes})


def test_users_of_bytes_become_text():
    users = check(Dataset("d", X, Y, users=np.array([each.encode() for each in ("a", "é", "a")]))).users
    assert users.tolist() == ["a", "é", "a"]


def test_columns_of_pandas_are_users_sequences_and_times():
    frame = pandas.DataFrame(
        {"who": ["bo", "al", "bo"], "when": pandas.to_datetime(["2025-03-02", "2025-03-01", "2025-03-03"])}
    )
    for who in (frame["who"], frame["who"].astype(object).to_numpy(), frame["who"].astype("category")):
        dataset = check(Dataset("d", X, Y, users=who, sequences=who, times=frame["when"]))
        assert dataset.users.dtype.kind == "U"
        assert dataset.users.tolist() == ["bo", "al", "bo"]
        assert dataset.sequences.tolist() == [1, 0, 1]
        assert dataset.times.argsort().tolist() == [1, 0, 2]


def test_pixels_become_floats_with_a_channel_axis():
    images = np.array([[[0, 255], [51, 102]]], np.uint8)
    x = check(Dataset("images", images, [0])).x
    assert x.shape == (1, 2, 2, 1)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.ravel(), [0, 1, 0.2, 0.4], rtol=1e-6)


def test_pixels_with_channels_or_flat_keep_their_shape():
    assert check(Dataset("colour", np.zeros((1, 2, 2, 3), np.uint8), [0])).x.shape == (1, 2, 2, 3)
    flat = check(Dataset("flat", np.full((1, 4), 255, np.uint8), [0])).x
    assert flat.tolist() == [[1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("given", "expected"),
    [(np.float64, np.float32), (np.float16, np.float32), (np.int64, np.int32), (np.int8, np.int32), (bool, np.float32)],
)
def test_inputs_become_float32_or_int32(given, expected):
    x = check(Dataset("d", np.ones((2, 3), given), [0, 1])).x
    assert x.dtype == expected
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_booleans_are_labels_of_two_classes(shape):
    dataset = check(Dataset("d", X, np.array([True, True, True]).reshape(shape)))
    assert (dataset.y.dtype, dataset.y.tolist(), dataset.classes) == (np.int32, [1, 1, 1], 2)
    several = check(Dataset("d", X, np.ones((3, 2), bool)))
    assert (several.y.dtype, several.classes) == (np.float32, None)


def test_times_may_be_a_list():
    assert check(Dataset("d", X, Y, times=[3, 1, 2])).times.tolist() == [3, 1, 2]


def test_integer_labels_become_int32_and_give_the_classes():
    dataset = check(Dataset("d", X, np.array([[4], [0], [2]], np.uint8)))
    assert dataset.y.dtype == np.int32
    assert dataset.y.tolist() == [4, 0, 2]
    assert dataset.classes == 5
    assert dataset.labels().tolist() == [4, 0, 2]


@pytest.mark.parametrize(("y", "classes"), [([0, 1, 2], 3), ([0.5, 1.5, 2.5], None)])
def test_each_class_has_a_name(y, classes):
    with pytest.raises(DataError, match=f"data d: class_names has 2 names, but classes is {classes}; name each class"):
        check(Dataset("d", X, np.array(y), class_names=["cat", "dog"]))


def test_float_targets_are_regression():
    dataset = check(Dataset("d", X, np.array([0.5, 1, 2])))
    assert dataset.y.dtype == np.float32
    assert dataset.classes is None
    with pytest.raises(
        DataError, match=r"data d: expected one class label for each example, found regression targets; make .*iid"
    ):
        dataset.labels()


def test_one_hot_targets_have_labels():
    dataset = check(Dataset("d", X, np.eye(3)[[2, 0, 1]], classes=3))
    assert dataset.y.shape == (3, 3)
    assert dataset.labels().tolist() == [2, 0, 1]


def test_sequence_labels_are_not_example_labels():
    dataset = check(Dataset("text", X, np.array([[0, 1], [1, 1], [2, 0]])))
    assert dataset.classes == 3
    with pytest.raises(DataError, match=r"found labels of shape \[2\]"):
        dataset.labels()


@pytest.mark.parametrize("kind", [str, object])
def test_labels_of_text_get_advice(kind):
    with pytest.raises(DataError, match=r"number the labels from 0: .*np\.unique\(y, return_inverse=True\)$"):
        check(Dataset("d", X, np.array(["a", "b", "a"], kind)))


def test_converted_arrays_are_not_copied():
    y = Y.astype(np.int32)
    dataset = check(Dataset("d", X, y))
    assert np.shares_memory(dataset.x, X)
    assert np.shares_memory(dataset.y, y)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Dataset("d", X, Y[:2]), r"data d: lengths differ: x \[3, 2\], y \[2\]"),
        (Dataset("d", X, Y, users=np.arange(4)), r"data d: lengths differ: x \[3, 2\], y \[3\], users \[4\]"),
        (Dataset("d", X[:0], Y[:0]), "data d: has no examples"),
        (Dataset("d", np.float32(1), Y), "data d: found x .*; expected arrays with the examples on the first axis"),
        (Dataset("d", np.array(["a", "b", "c"]), Y), "data d: x has dtype <U1, expected numbers"),
        (Dataset("d", np.array([[2**40], [0], [0]]), Y), r"data d: x ranges over 0\.\.1099511627776, .* fit int32"),
        (
            Dataset("d", np.array([[1], [np.nan], [np.inf]]), Y),
            "data d: x has 2 values that are NaN or infinite .*, the first in example 1",
        ),
        (
            Dataset("d", np.array([[1], [1e300], [0]]), Y),
            "data d: x has 1 value that is .* infinite in float32, .* example 1",
        ),
        (Dataset("d", X, np.array([0, 1, np.nan])), "data d: y has 1 value .*, the first in example 2"),
        (
            Dataset("d", X, Y, classes=2),
            r"data d: 1 label out of range, the first is 2 in example 2; expected 0\.\.1",
        ),
        (
            Dataset("d", X, np.array([1, -1, -1])),
            r"the first is -1 in example 1; expected 0\.\.1 for 2 classes; count classes from 0, or store y as float32",
        ),
        (Dataset("d", X, np.float32(Y), classes=3), r"data d: y is float32 \[3\], but classes is 3"),
        (Dataset("d", X, Y, classes=0), "data d: classes is 0, expected a whole number of at least 1"),
        (Dataset("d", X, Y, users=np.array([b"\xff"] * 3)), r"data d: users contains bytes that are not UTF-8 text"),
        (Dataset("d", X, Y, users=np.float32(Y)), r"data d: users is float32 \[3\], expected one integer or string"),
        (Dataset("d", X, Y, users=np.array(["a", None, "b"])), r"data d: users is object \[3\], expected one integer"),
        (
            Dataset("d", X, Y, sequences=np.float32(Y)),
            r"data d: sequences is float32 \[3\], expected one integer or str",
        ),
        (
            Dataset("d", X, Y, times=np.array(["2025-03-01", "NaT", "2025-03-02"], "datetime64[s]")),
            r"data d: times is datetime64\[s\] \[3\], expected one finite number or date for each of 3 examples",
        ),
    ],
)
def test_unusable_data_is_refused_in_one_line(dataset, message):
    with pytest.raises(DataError, match=message) as caught:
        check(dataset)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("void", [-1, -100, 255])
def test_labels_of_positions_may_be_void(void):
    y = np.array([[0, void], [1, 1], [2, void]])
    assert check(Dataset("d", X, y, classes=3)).y.tolist() == y.tolist()
    y[1, 1] = -2
    with pytest.raises(DataError, match="1 label out of range, the first is -2 in example 1"):
        check(Dataset("d", X, y, classes=3))


def test_fitting_data_passes():
    check_against(check(Dataset("d", X, Y)), [2], np.float32, [], "int32", 3)
    check_against(check(Dataset("d", X, np.float32(Y))), (2,), np.float32, (), np.float32, None)


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (((3,), np.float32, (), np.int32, 3), r"data d: x has shape \[2\] per example, .* takes \[3\]; choose a model"),
        (((2,), np.int32, (), np.int32, 3), "data d: x has dtype float32, the model's train signature takes int32"),
        (((2,), np.float32, (3,), np.int32, 3), r"data d: y has shape \[\] per example, .* takes \[3\]"),
        (((2,), np.float32, (), np.float32, None), "data d: y has dtype int32, .* takes float32"),
        (
            ((2,), np.float32, (), np.int32, 2),
            r"the first is 2 in example 2; expected 0\.\.1 for 2 classes; number labels",
        ),
    ],
)
def test_data_for_another_model_is_refused_in_one_line(signature, message):
    with pytest.raises(DataError, match=message) as caught:
        check_against(check(Dataset("d", X, Y)), *signature)
    assert "\n" not in str(caught.value)


def test_one_value_gets_the_axis_of_the_model():
    y = np.float32([0.5, 1, 2])
    assert as_targets(y, (1,), "float32").tolist() == [[0.5], [1], [2]]
    assert as_targets(y, (), "float32") is y
    assert as_targets(y, (3,), "float32") is y


@pytest.mark.parametrize("kind", [np.int32, np.uint8, bool])
def test_binary_labels_become_floats_for_a_float_model(kind):
    found = as_targets(np.array([0, 1, 1], kind), (1,), "float32")
    assert (found.dtype, found.tolist()) == (np.float32, [[0], [1], [1]])


def test_labels_of_more_classes_stay_unchanged():
    y = np.array([0, 1, 2], np.int32)
    assert as_targets(y, (), "float32") is y
    assert as_targets(y, (), "int32") is y


def test_labels_of_a_classifier_become_one_hot_rows_or_floats():
    y = np.array([0, 2], np.int32)
    assert as_targets(y, (3,), "float32", 3).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert as_targets(y, (1,), "float32", 3).tolist() == [[0], [2]]
    assert as_targets(y, (), "float32", 3).dtype == np.float32
    assert as_targets(y, (2,), "float32", 2) is y  # a label is out of range
    with pytest.raises(DataError, match="1 label out of range, the first is 2 in example 1"):
        check_against(check(Dataset("d", X[:2], y)), (2,), "float32", (2,), "float32", 2)


def test_check_applies_the_conversion():
    check_against(check(Dataset("values", X, np.array([0.5, 1, 2]))), (2,), "float32", (1,), "float32", None)
    check_against(check(Dataset("labels", X, np.array([0, 1, 1]))), (2,), "float32", (1,), "float32", None)
    with pytest.raises(DataError, match="data classes: y has dtype int32, the model's train signature takes float32"):
        check_against(check(Dataset("classes", X, np.array([0, 1, 2]))), (2,), "float32", (1,), "float32", None)
