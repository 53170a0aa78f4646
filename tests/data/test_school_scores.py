import numpy as np
import pytest

from odt_sim.data.sources.published import school
from odt_sim.errors import DataError


def saved(folder, scores=(1, 70, 24)):
    x = np.array([[0, 10, 1], [2, 10, 1], [5, 10, 1]], np.float32)
    np.savez(folder / "school.npz", x=x, y=np.array(scores, np.float32), school=np.array([7, 7, 9]))
    return folder / "school.npz"


def test_scores_are_scaled_and_features_are_not(tmp_path):
    dataset = school(saved(tmp_path))
    assert dataset.x.tolist() == [[0, 10, 1], [2, 10, 1], [5, 10, 1]]
    assert dataset.standardize
    np.testing.assert_allclose(dataset.y, [0, 1, 1 / 3])
    assert dataset.users.tolist() == [7, 7, 9]
    assert (dataset.x.dtype, dataset.y.dtype, dataset.classes) == (np.float32, np.float32, None)


def test_score_out_of_range_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"scores y range over 0\.\.71, expected 1\.\.70"):
        school(saved(tmp_path, (0, 71, 3)))
