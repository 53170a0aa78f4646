"""The ILEA School data: exam scores of 15,362 students of 139 schools, with 28 features each.

Bakker and Heskes, "Task Clustering and Gating for Bayesian Multitask Learning", JMLR 2003; used as a personalization
benchmark in Wu et al., "Motley: Benchmarking Heterogeneity and Personalization in Federated Learning", 2022.
"""

import os
from dataclasses import replace

import numpy as np

from odt_sim._support.checks import names_arguments
from odt_sim.data.dataset import Dataset
from odt_sim.data.dataset_checks import check
from odt_sim.data.sources import read_npz
from odt_sim.errors import DataError

LOWEST_SCORE, HIGHEST_SCORE = 1, 70


@names_arguments
def school(path: str | os.PathLike[str]) -> Dataset:
    """Read the School data; each school is a user.

    Scores are scaled from 1..70 to 0..1. Each school later standardizes features by its own training examples.

    Args:
        path: An `.npz` file with `x` `[students, features]`, `y` `[students]` scores and `school` `[students]` integers.

    Returns:
        `x` `[students, features]` float32, `y` `[students]` float32 in 0..1.

    Raises:
        DataError: The file is missing, damaged, lacks an array, or a score is not in 1..70.
    """
    arrays = read_npz(path, ["x", "y", "school"])
    x, y = arrays["x"].astype(np.float32), arrays["y"].astype(np.float32)
    raw = check(Dataset("school", x, y, arrays["school"], standardize=True))
    if y.min() < LOWEST_SCORE or y.max() > HIGHEST_SCORE:
        raise DataError(
            f"data {path}: scores y range over {y.min():g}..{y.max():g}, expected {LOWEST_SCORE}..{HIGHEST_SCORE}; "
            "use the published scores"
        )
    return replace(raw, y=(y - LOWEST_SCORE) / (HIGHEST_SCORE - LOWEST_SCORE))
