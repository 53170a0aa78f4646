"""Files with several inputs or outputs are diagnosed by steps on random rows."""

from pathlib import Path

import pytest

from odt_sim import TrainableModel
from odt_sim.doctor.diagnosis import diagnose


@pytest.mark.parametrize(
    ("name", "loss", "takes"),
    [
        ("recommender", "sparse_categorical_crossentropy of logits", "x_user, x_item and y"),
        ("recommender_of_own_loss", "its own", "x_user, x_item and y"),
        ("heads", "sparse_categorical_crossentropy of logits + mean_squared_error", "x and y_kind, y_size"),
    ],
)
def test_files_with_several_inputs_or_outputs_train_here_but_in_no_browser(
    name: str, loss: str, takes: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(model.content)
    found = diagnose(path)
    assert found.verdicts["litert"].trains
    assert not found.prevented
    assert [(each.kind.id, each.found) for each in found.findings] == [("D108", "8 rows in each call")]
    assert not found.verdicts["browser"].trains
    assert found.verdicts["browser"].reason.startswith(f"takes {takes}; the page for phones trains")
    assert (found.measured["rows"], found.measured["loss"]) == (8, loss)
    assert found.verdicts["browser"].reason.endswith("; simulate it with backend=auto")
