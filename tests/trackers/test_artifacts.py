"""The comparison, the plots and the trained model in TensorBoard, MLflow and W&B, written by their own packages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odt_sim import TrainableModel
from odt_sim.cli.main import main
from tests.trackers.test_wandb_tracker import records_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("softmax"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),  # sqlalchemy, about MLflow
]

SMALL = ["backend=serial", "model=softmax", "fleet.devices=4", "fleet.unseen=1", "run.rounds=2"]
FILES = {"report.html", "comparison.json"}


def sweep(folder: Path, *tracker: str) -> list[str]:
    """Run FedAvg and local training, whose server has no model; return the names of the plots."""
    assert main(["run", "-m", *SMALL, *tracker, "strategy=fedavg,local", f"hydra.sweep.dir={folder}"]) == 0
    names = sorted(path.name for path in (folder / "figures").glob("*.png"))
    assert "rounds.png" in names
    return names


def single(folder: Path, *tracker: str) -> None:
    assert main(["run", *SMALL, *tracker, f"hydra.run.dir={folder}"]) == 0


def test_tensorboard(read: Callable[[Path], Any], tmp_path: Path) -> None:
    names = sweep(tmp_path, "tracker=tensorboard")
    events = read(tmp_path / "tensorboard" / "report")
    images = {tag: events.Images(tag)[0].encoded_image_string for tag in events.Tags()["images"]}
    figures = tmp_path / "figures"
    assert images == {f"report/{Path(name).stem}": (figures / name).read_bytes() for name in names}
    text = events.Tensors("report")[0].tensor_proto.string_val[0].decode()
    assert "Test accuracy by strategy" in text
    assert str(tmp_path / "report.html") in text
    (job,) = (tmp_path / "0" / "tensorboard").iterdir()
    model = read(job).Tensors("model")[0].tensor_proto.string_val[0].decode()
    assert Path(model.strip("`")).read_bytes() == (tmp_path / "0" / "model.tflite").read_bytes()
    (local,) = (tmp_path / "1" / "tensorboard").iterdir()
    assert "model" not in read(local).Tags()["tensors"]


def test_repeated_report_replaces_the_earlier_one(read: Callable[[Path], Any], tmp_path: Path) -> None:
    single(tmp_path / "run", "tracker=tensorboard")
    assert main(["run", f"run.resume={tmp_path}/run", "run.rounds=3"]) == 0
    events = read(tmp_path / "run" / "tensorboard" / "report")
    assert len(events.Tensors("report")) == 1


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database, by default, and its artifacts lie in the working folder."""
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    tracker = ["tracker=mlflow"]
    names = sweep(tmp_path / "sweep", *tracker)
    single(tmp_path / "run", *tracker)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("odt_sim").experiment_id
    runs = {Path(run.data.tags["odt_sim.folder"]): run for run in client.search_runs([experiment])}
    assert set(runs) == {tmp_path / "sweep" / "0", tmp_path / "sweep" / "1", tmp_path / "sweep", tmp_path / "run"}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}

    def artifacts(folder: Path, path: str) -> set[str]:
        listed = client.list_artifacts(runs[folder].info.run_id, path)
        return {Path(file.path).name for file in listed if not file.is_dir}

    for folder in (tmp_path / "sweep", tmp_path / "run"):
        assert artifacts(folder, "report") == FILES
    assert sorted(artifacts(tmp_path / "sweep", "report/figures")) == names
    assert artifacts(tmp_path / "sweep" / "1", "model") == set()
    for folder in (tmp_path / "sweep" / "0", tmp_path / "run"):
        file = client.download_artifacts(runs[folder].info.run_id, "model/model.tflite", str(tmp_path))
        assert Path(file).read_bytes() == (folder / "model.tflite").read_bytes()
        TrainableModel.load(file)


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command starts in one folder and names its own relative to it."""
    pytest.importorskip("wandb", reason="odt_sim[wandb] is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    tracker = ["tracker=wandb", "tracker.mode=offline"]
    names = sweep(Path("sweep"), *tracker)
    single(Path("run"), *tracker)
    assert artifacts_in(tmp_path / "sweep") == {"report": FILES | {f"figures/{name}" for name in names}}
    assert artifacts_in(tmp_path / "sweep" / "0") == {"model": {"model.tflite"}}
    assert artifacts_in(tmp_path / "sweep" / "1") == {}
    ours = artifacts_in(tmp_path / "run")
    assert ours.keys() == {"model", "report"}
    assert ours["report"] > FILES


def artifacts_in(folder: Path) -> dict[str, set[str]]:
    """Return the names of the files in each artifact of a folder's offline runs, by the artifact's type."""
    found: dict[str, set[str]] = {}
    for file in folder.glob("wandb/offline-run-*/run-*.wandb"):
        for record in records_of(file):
            if record.WhichOneof("record_type") == "artifact":
                found[record.artifact.type] = {entry.path for entry in record.artifact.manifest.contents}
    return found
