"""A tracker is always closed, and costs no run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from odt_sim.errors import ConfigurationError, DataError
from odt_sim.trackers.base import Tracker
from odt_sim.trackers.tracking import tracked

Track = Callable[..., None]


class Recorder(Tracker):
    """Keeps what it is told, and fails where it is asked to."""

    def __init__(self, fails_at: tuple[str, ...] = (), error: Exception | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._fails_at, self._error = fails_at, error or OSError("no [room]\nleft")

    def start(self, name: str, settings: Mapping[str, Any], folder: Path) -> None:
        self._keep("start", name, settings, folder)

    def round(self, record: Mapping[str, Any]) -> None:
        self._keep(f"round {record['round']}", record)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        self._keep("end", summary)

    def _keep(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] in self._fails_at:
            raise self._error

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


def test_a_tracker_follows_a_run(track: Track, tmp_path: Path) -> None:
    recorder = Recorder()
    track(recorder, tmp_path, name="fedper seed=3")
    assert recorder.names == ["start", "round 1", "round 2", "end"]
    assert recorder.calls[2][1]["accuracy"] == 0.75
    assert recorder.calls[3][1]["metrics"]["accuracy"]["worst"] == 0.5
    _, name, settings, folder = recorder.calls[0]
    assert (name, folder) == ("fedper seed=3", tmp_path)
    assert settings == {
        **{"seed": 0, "run.rounds": 2, "run.resume": None, "train.learning_rate": 0.125},
        **{"strategy._target_": "odt_sim.strategies.fedavg.FedAvg", "strategy.flags": [True, "two"]},
    }  # and not what stands under `tracker`


@pytest.mark.parametrize("error", [DataError("no examples"), ValueError("a bug"), KeyboardInterrupt()])
def test_a_run_that_fails_closes_its_tracker_as_failed(error: BaseException, tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(type(error)) as raised, tracked(recorder, "fedavg", {}, tmp_path):
        raise error
    assert raised.value is error
    assert recorder.calls[1:] == [("end", None)]


def test_a_tracker_that_fails_is_reported_once_and_the_run_goes_on(
    track: Track, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(fails_at=("round 1", "round 2"))
    track(recorder, tmp_path)
    assert recorder.names == ["start", "round 1", "end"]
    assert capsys.readouterr().err.splitlines() == [
        "warning tracker Recorder: failed (OSError: no [room] left) at round 1; "
        "the records in the run's folder are complete"
    ]


def test_a_tracker_that_cannot_end_hides_no_error_of_the_run(
    track: Track, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="the run failed"):
        track(Recorder(fails_at=("end",)), tmp_path, fails_after=1)
    assert "at the end of the run" in capsys.readouterr().err


def test_a_tracker_that_cannot_start_ends_the_run_before_it_begins(track: Track, tmp_path: Path) -> None:
    recorder = Recorder(fails_at=("start",))
    with pytest.raises(ConfigurationError) as raised:
        track(recorder, tmp_path)
    assert str(raised.value) == (
        "tracker Recorder: failed (OSError: no [room] left) at the start; correct tracker.* or choose tracker=none"
    )
    assert recorder.names == ["start"]


def test_a_clear_error_at_the_start_stays_as_it_is(track: Track, tmp_path: Path) -> None:
    error = ConfigurationError("tracker.project: expected a name")
    with pytest.raises(ConfigurationError, match=r"^tracker\.project: expected a name$"):
        track(Recorder(fails_at=("start",), error=error), tmp_path)


def test_the_base_class_tracks_nothing(track: Track, tmp_path: Path) -> None:
    track(Tracker(), tmp_path)
    assert list(tmp_path.iterdir()) == []
