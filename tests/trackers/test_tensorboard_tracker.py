"""Event files, read by TensorBoard's own reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from written_runs import round_record

from odt_sim.observers.base import RunInfo
from odt_sim.trackers.tensorboard import TensorBoard

Track = Callable[..., None]
Expected = dict[str, Any]


def scalars(events: Any) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            found.setdefault(event.step, {})[tag] = event.value
    return found


def hparams(events: Any, name: str) -> Any:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    content = events.SummaryMetadata(f"_hparams_/{name}").plugin_data.content
    return getattr(HParamsPluginData.FromString(content), name)


def status(events: Any) -> str:
    from tensorboard.plugins.hparams.api_pb2 import Status

    return str(Status.Name(hparams(events, "session_end_info").status))


def test_scalars_by_round(track: Track, read: Callable[[Path], Any], expected: Expected, tmp_path: Path) -> None:
    track(TensorBoard(), tmp_path, name="fedavg seed=0")
    events = read(tmp_path / "tensorboard" / "fedavg seed=0")
    rounds = expected["rounds"]
    assert scalars(events) == {1: rounds[1], 2: {**rounds[2], **expected["summary"]}}
    assert status(events) == "STATUS_SUCCESS"


def test_settings_are_hyper_parameters(track: Track, read: Callable[[Path], Any], tmp_path: Path) -> None:
    track(TensorBoard(), tmp_path, name="fedavg")
    values = hparams(read(tmp_path / "tensorboard" / "fedavg"), "session_start_info").hparams
    assert values["run.rounds"].number_value == 2
    assert values["train.learning_rate"].number_value == 0.125
    assert values["strategy._target_"].string_value == "odt_sim.strategies.averaging.fedavg.FedAvg"
    assert values["strategy.flags"].string_value == "[True, 'two']"
    assert values["run.resume"].string_value == "None"


def test_resumed_run_has_its_present_settings(read: Callable[[Path], Any], tmp_path: Path) -> None:
    for rounds in (2, 3):
        tracker = TensorBoard()
        tracker.on_begin(RunInfo("fedavg", {"run.rounds": rounds}, tmp_path, rounds))
        tracker.on_end(None)
    values = hparams(read(tmp_path / "tensorboard" / "fedavg"), "session_start_info").hparams
    assert values["run.rounds"].number_value == 3


def test_failed_run_keeps_its_rounds_and_its_status(
    track: Track, read: Callable[[Path], Any], expected: Expected, tmp_path: Path
) -> None:
    track(TensorBoard(), tmp_path, name="local", fails_after=1)
    events = read(tmp_path / "tensorboard" / "local")
    assert scalars(events) == {1: expected["rounds"][1]}
    assert status(events) == "STATUS_FAILURE"


def test_resumed_run_is_one_run(track: Track, read: Callable[[Path], Any], expected: Expected, tmp_path: Path) -> None:
    track(TensorBoard(), tmp_path, name="local", fails_after=1)
    track(TensorBoard(), tmp_path, name="local")
    events = read(tmp_path / "tensorboard" / "local")
    assert [event.value for event in events.Scalars("devices")] == [3, 3, 2]  # round 1 of either process
    assert status(events) == "STATUS_SUCCESS"


def test_any_title_becomes_one_folder(track: Track, tmp_path: Path) -> None:
    track(TensorBoard(), tmp_path, name="fedavg model.path=../a/b.tflite " + "é" * 300)
    (folder,) = (tmp_path / "tensorboard").iterdir()
    assert folder.name == ("fedavg model.path=.._a_b.tflite " + "_" * 300)[:100]


def test_figures_are_on_disk_after_each_round(track: Track, read: Callable[[Path], Any], tmp_path: Path) -> None:
    tracker = TensorBoard()
    tracker.on_begin(RunInfo("fedavg", {}, tmp_path, rounds=2))
    tracker.on_round(round_record(1, train_loss=0.5))
    assert scalars(read(tmp_path / "tensorboard" / "fedavg"))[1]["train_loss"] == 0.5
    tracker.on_end(None)
