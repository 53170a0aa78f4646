import numpy as np
import pytest

from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check, check_against
from odt_sim.errors import DataError

X = np.float32([[1, 2], [3, 4], [5, 6]])
Y = np.array([0, 1, 2])


def test_pixels_become_floats_between_0_and_1_with_a_channel_axis():
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


def test_integer_labels_become_int32_and_count_the_classes():
    dataset = check(Dataset("d", X, np.array([[4], [0], [2]], np.uint8)))
    assert dataset.y.dtype == np.int32
    assert dataset.y.tolist() == [4, 0, 2]
    assert dataset.classes == 5
    assert dataset.labels().tolist() == [4, 0, 2]


def test_float_targets_are_regression():
    dataset = check(Dataset("d", X, np.array([0.5, 1, 2])))
    assert dataset.y.dtype == np.float32
    assert dataset.classes is None
    with pytest.raises(
        DataError, match=r"data d: expected one class label for each example, found values to regress; use .*iid"
    ):
        dataset.labels()


def test_one_hot_targets_have_labels():
    dataset = check(Dataset("d", X, np.eye(3)[[2, 0, 1]], classes=3))
    assert dataset.y.shape == (3, 3)
    assert dataset.labels().tolist() == [2, 0, 1]


def test_one_hot_targets_whose_classes_nobody_named():
    one_hot = check(Dataset("d", X, np.eye(4)[[2, 0, 1]]))
    with pytest.raises(
        DataError, match=r"data\.classes=4 .*Dataset\(name, x, y, classes=4\) from a function; else use a"
    ) as caught:
        one_hot.labels()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("y", [np.full((3, 4), 0.5), np.array([[-1, 2.0]] * 3), np.ones((3, 1))])
def test_values_that_are_no_probabilities_are_not_called_one_hot(y):
    with pytest.raises(DataError, match="found values to regress; use a partition"):
        check(Dataset("d", X, y)).labels()


def test_labels_of_sequences_are_no_label_of_an_example():
    dataset = check(Dataset("text", X, np.array([[0, 1], [1, 1], [2, 0]])))
    assert dataset.classes == 3
    with pytest.raises(DataError, match=r"found labels of shape \[2\]"):
        dataset.labels()


def test_what_is_already_right_is_not_copied():
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
        (Dataset("d", np.array([[2**40], [0], [0]]), Y), r"data d: x reaches 0\.\.1099511627776, .* fit int32"),
        (
            Dataset("d", np.array([[1], [np.nan], [np.inf]]), Y),
            "data d: x has 2 values that are NaN or infinite .*, the first in example 1",
        ),
        (
            Dataset("d", np.array([[1], [1e300], [0]]), Y),
            "data d: x has 1 values that are .* infinite in float32, .* example 1",
        ),
        (Dataset("d", X, np.array([0, 1, np.nan])), "data d: y has 1 values .*, the first in example 2"),
        (
            Dataset("d", X, Y, classes=2),
            r"data d: 1 labels are out of range, the first is 2 in example 2; expected 0\.\.1",
        ),
        (Dataset("d", X, np.array([0, -1, -1])), "data d: 2 labels are out of range, the first is -1 in example 1"),
        (Dataset("d", X, np.float32(Y), classes=3), r"data d: y is float32 \[3\], but classes is 3"),
        (Dataset("d", X, Y, classes=0), "data d: classes is 0, expected at least 1"),
        (Dataset("d", X, Y, users=np.float32(Y)), r"data d: users is float32 \[3\], expected one integer or string"),
    ],
)
def test_unusable_data_is_named_in_one_line(dataset, message):
    with pytest.raises(DataError, match=message) as caught:
        check(dataset)
    assert "\n" not in str(caught.value)


def test_data_that_fits_the_model_passes():
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
            r"the first is 2 in example 2; expected 0\.\.1 for 2 classes; choose a model",
        ),
    ],
)
def test_data_that_does_not_fit_the_model_is_named_in_one_line(signature, message):
    with pytest.raises(DataError, match=message) as caught:
        check_against(check(Dataset("d", X, Y)), *signature)
    assert "\n" not in str(caught.value)
