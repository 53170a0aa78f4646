"""Runs in an MLflow database, read by MLflow's own client."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from written_runs import BLANK, round_record

from odt_sim.errors import ConfigurationError
from odt_sim.observers.base import RunInfo
from odt_sim.persistence.summary import Summary
from odt_sim.trackers.mlflow import MAX_PARAMETER_LENGTH, RETRIES, MLflow

Track = Callable[..., None]
Expected = dict[str, Any]

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),  # sqlalchemy, about MLflow
]


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An SQLite database shared by all tests, since MLflow takes seconds to set one up."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture(scope="session")
def runs(uri: str) -> Callable[[str], list[Any]]:
    """Return a function that reads all runs of an experiment."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)

    def read(experiment: str) -> list[Any]:
        return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))

    return read


@pytest.fixture(scope="session")
def history(uri: str) -> Callable[[str], dict[int, dict[str, float]]]:
    """Return a function that reads all metrics of a run by step."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)

    def read(run_id: str) -> dict[int, dict[str, float]]:
        found: dict[int, dict[str, float]] = {}
        for key in client.get_run(run_id).data.metrics:
            for metric in client.get_metric_history(run_id, key):
                found.setdefault(metric.step, {})[key] = metric.value
        return found

    return read


def test_names_with_characters_that_mlflow_refuses(uri: str, runs: Callable[..., Any], tmp_path: Path) -> None:
    tracker = MLflow(uri, "names")
    tracker.on_begin(RunInfo("fedavg", {"user.share (%)": 5}, tmp_path, rounds=1))
    tracker.on_end(Summary.of({**BLANK, "fleet_totals": {"classes": {"Pixel 8 (2023)": {"joules": 2.0}}}}))
    (run,) = runs("names")
    assert run.info.status == "FINISHED"
    assert run.data.params == {"user.share ___": "5"}
    assert run.data.metrics["summary/fleet_totals/classes/Pixel 8 _2023_/joules"] == 2


def test_parameters_and_metrics(
    track: Track, uri: str, runs: Callable[..., Any], history: Callable[..., Any], expected: Expected, tmp_path: Path
) -> None:
    track(MLflow(uri, "whole"), tmp_path, name="fedavg seed=0")
    (run,) = runs("whole")
    assert (run.info.run_name, run.info.status) == ("fedavg seed=0", "FINISHED")
    assert run.data.tags["odt_sim.folder"] == str(tmp_path)
    assert run.data.params == {
        **{"seed": "0", "run.rounds": "2", "run.resume": "None", "train.learning_rate": "0.125"},
        **{"strategy._target_": "odt_sim.strategies.averaging.fedavg.FedAvg", "strategy.flags": "[True, 'two']"},
    }
    rounds = expected["rounds"]
    assert history(run.info.run_id) == {1: rounds[1], 2: {**rounds[2], **expected["summary"]}}


def test_failed_run_is_marked_as_failed(
    track: Track, uri: str, runs: Callable[..., Any], history: Callable[..., Any], expected: Expected, tmp_path: Path
) -> None:
    track(MLflow(uri, "failed"), tmp_path, fails_after=1)
    (run,) = runs("failed")
    assert run.info.status == "FAILED"
    assert history(run.info.run_id) == {1: expected["rounds"][1]}


def test_each_job_is_one_run(track: Track, uri: str, runs: Callable[..., Any], tmp_path: Path) -> None:
    for job in ("seed=0", "seed=1"):
        (tmp_path / job).mkdir()
        track(MLflow(uri, "sweep"), tmp_path / job, name=job)
    assert {run.info.run_name for run in runs("sweep")} == {"seed=0", "seed=1"}


def test_resumed_run_keeps_its_id_and_a_new_run_in_the_folder_does_not(
    uri: str, runs: Callable[..., Any], history: Callable[..., Any], tmp_path: Path
) -> None:
    first, second, third = (MLflow(uri, "resumed") for _ in range(3))
    first.on_begin(RunInfo("local", {}, tmp_path, rounds=2))
    first.on_round(round_record(1, train_loss=0.5))
    second.on_begin(RunInfo("local", {}, tmp_path, rounds=2, recorded=[round_record(1)]))
    assert [run.info.status for run in runs("resumed")] == ["RUNNING"]
    second.on_round(round_record(2, train_loss=0.25))
    second.on_end(Summary.of(BLANK))
    (run,) = runs("resumed")
    assert run.info.status == "FINISHED"
    losses = {step: values.get("train_loss") for step, values in history(run.info.run_id).items()}
    assert losses == {1: 0.5, 2: 0.25}
    third.on_begin(RunInfo("local", {}, tmp_path, rounds=2))
    third.on_end(None)
    assert len(runs("resumed")) == 2


def test_settings_that_were_changed_when_resuming_are_tags(uri: str, runs: Callable[..., Any], tmp_path: Path) -> None:
    for rounds, resumed in ((2, None), (3, "out"), (4, "out"), (4, "out"), (2, "out")):
        tracker = MLflow(uri, "changed")
        recorded = [round_record(1)] if resumed else []
        settings = {"seed": 0, "run.rounds": rounds, "run.resume": resumed}
        tracker.on_begin(RunInfo("local", settings, tmp_path, rounds, recorded))
        tracker.on_end(None)
        (run,) = runs("changed")
        assert run.data.params == {"seed": "0", "run.rounds": "2", "run.resume": "None"}
        own = {key: value for key, value in run.data.tags.items() if not key.startswith(("mlflow.", "odt_sim."))}
        assert own == ({"run.rounds": str(rounds)} if resumed else {})


def test_many_and_long_settings_fit(uri: str, runs: Callable[..., Any], tmp_path: Path) -> None:
    tracker = MLflow(uri, "many")
    settings = {f"strategy.value{i}": i * "x" for i in (*range(230), 7000)}
    tracker.on_begin(RunInfo("fedavg", settings, tmp_path, rounds=1))
    tracker.on_end(None)
    (run,) = runs("many")
    assert {key: len(value) for key, value in run.data.params.items()} == {
        f"strategy.value{i}": min(i, MAX_PARAMETER_LENGTH) for i in (*range(230), 7000)
    }


def test_invalid_address_ends_the_run_at_its_start(track: Track, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^tracker=mlflow: opening a run at nowhere:// failed with "):
        track(MLflow("nowhere://", "x"), tmp_path)


def test_unreachable_server_ends_the_run_soon(track: Track, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RETRIES, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed below, so that nothing listens there
    message = (
        rf"^tracker=mlflow: opening a run at http://127.0.0.1:{port} failed with .*Connection refused.*; "
        r"check tracker.tracking_uri and whether its server runs$"
    )
    started = time.monotonic()
    with pytest.raises(ConfigurationError, match=message):
        track(MLflow(f"http://127.0.0.1:{port}", "x"), tmp_path)
    assert time.monotonic() - started < 30
    assert RETRIES not in os.environ
