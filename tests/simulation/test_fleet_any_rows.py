"""A model of any number of rows learns what a model with padded batches learns."""

from pathlib import Path
from typing import Any

import numpy as np

from odt_sim import TrainableModel
from odt_sim.strategies.averaging.fedavg import FedAvg


def test_any_rows_train_as_padded_batches(
    any_rows: TrainableModel, rows_of_32: TrainableModel, results: Any, tmp_path: Path
) -> None:
    found, expected = (results(FedAvg(), tmp_path / m.name, model=m) for m in (any_rows, rows_of_32))
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        np.testing.assert_allclose(found.tensors[name], tensor, rtol=0, atol=1e-6, err_msg=name)
    losses = [[row["train_loss"] for row in run.rounds] for run in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert losses[0][-1] < losses[0][0]
