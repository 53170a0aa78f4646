"""Files with several inputs or outputs are diagnosed by steps on random rows."""

from pathlib import Path

import pytest

from odt_sim import TrainableModel
from odt_sim.doctor.diagnosis import diagnose


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("recommender", "sparse_categorical_crossentropy of logits"),
        ("recommender_of_own_loss", "its own"),
        ("heads", "sparse_categorical_crossentropy of logits + mean_squared_error"),
    ],
)
def test_files_with_several_inputs_or_outputs_train_here_and_in_a_browser(
    name: str, loss: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(model.content)
    found = diagnose(path)
    assert found.verdicts["litert"].trains
    assert not found.prevented
    assert [(each.kind.id, each.found) for each in found.findings] == [("D108", "8 rows in each call")]
    assert found.verdicts["browser"].trains
    assert (found.measured["rows"], found.measured["loss"]) == (8, loss)
