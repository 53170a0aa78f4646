"""The ILEA School data: the exam scores of 15,362 students of 139 schools, regressed on 28 features of each.

Bakker and Heskes, "Task Clustering and Gating for Bayesian Multitask Learning", JMLR 2003; as a benchmark of personalization
in Liu et al., "On Privacy and Personalization in Cross-Silo Federated Learning", NeurIPS 2022.
"""

import os

import numpy as np

from odt_sim.data.check import check
from odt_sim.data.dataset import Array, Dataset
from odt_sim.data.sources import read_npz
from odt_sim.errors import DataError

LOWEST_SCORE, HIGHEST_SCORE = 1, 70


def school(path: str | os.PathLike[str]) -> Dataset:
    """Reads the School data; each school is a user.

    Features are standardized within each school over all its students (one that is the same for all becomes 0), scores are
    brought from 1..70 to 0..1.

    Args:
        path: An `.npz` file with `x` `[students, features]`, `y` `[students]` scores and `school` `[students]` integers.

    Returns:
        `x` `[students, features]` float32, `y` `[students]` float32 in 0..1.

    Raises:
        DataError: The file is missing, damaged, lacks an array, or a score is not in 1..70.
    """
    arrays = read_npz(path, ["x", "y", "school"])
    raw = check(Dataset("school", arrays["x"].astype(np.float32), arrays["y"].astype(np.float32), arrays["school"]))
    if raw.y.min() < LOWEST_SCORE or raw.y.max() > HIGHEST_SCORE:
        raise DataError(
            f"data {path}: scores y reach {raw.y.min():g}..{raw.y.max():g}, expected {LOWEST_SCORE}..{HIGHEST_SCORE}; "
            "give the scores as they were published"
        )
    x = np.empty(raw.x.shape, np.float64)
    for one in np.unique(arrays["school"]):
        rows = arrays["school"] == one
        x[rows] = _standardized(raw.x[rows])
    return check(Dataset("school", x, (raw.y - LOWEST_SCORE) / (HIGHEST_SCORE - LOWEST_SCORE), arrays["school"]))


def _standardized(x: Array) -> Array:
    """Returns each column with mean 0 and population standard deviation 1; zeros where it does not vary."""
    centered = x - x.mean(axis=0, dtype=np.float64)
    deviations = np.where(np.ptp(x, axis=0) > 0, x.std(axis=0, dtype=np.float64), 1.0)
    return np.asarray(np.where(np.ptp(x, axis=0) > 0, centered, 0.0) / deviations)
