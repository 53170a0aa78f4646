import numpy as np

from odt_sim.data.federated import standardized


def test_a_device_knows_only_its_own_training_examples():
    """Of two devices; a feature that is the same in training is only centered, and the last example is nobody's."""
    x = np.array([[0, 7], [4, 7], [6, 9], [10, 5], [1, 1], [3, 1], [2, 1], [8, 8]], np.float32)
    offsets = np.array([[0, 2, 3, 4], [4, 6, 6, 7]])
    after = standardized(x, np.arange(7), offsets)
    expected = [[-1, 0], [1, 0], [2, 2], [4, -2], [-1, 0], [1, 0], [0, 0], [8, 8]]
    assert after.tolist() == expected
    assert after.dtype == np.float32
    assert x[0].tolist() == [0, 7]


def test_one_training_example_centers():
    after = standardized(np.array([[3.0], [5.0], [4.0]], np.float32), np.arange(3), np.array([[0, 1, 2, 3]]))
    assert after.tolist() == [[0], [2], [1]]
