"""Files with several inputs or outputs are diagnosed by steps on random rows."""

from pathlib import Path

import pytest

from odt_sim import TrainableModel
from odt_sim.doctor.diagnosis import diagnose


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("recommender", "sparse_categorical_crossentropy"),
        ("heads", "sparse_categorical_crossentropy + mean_squared_error"),
    ],
)
def test_files_with_several_inputs_or_outputs_train(
    name: str, loss: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(model.content)
    found = diagnose(path)
    assert found.verdicts["litert"].trains
    assert not found.prevented
    assert (found.measured["rows"], found.measured["loss"]) == (8, loss)
