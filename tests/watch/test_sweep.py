"""Jobs as the page shows them, read from run folders that grow, fail, resume and end."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from written_runs import round_record, write_hydra, write_run

from odt_sim._support.files import write_file
from odt_sim.persistence.run_folder import ROUNDS, RunFolder
from odt_sim.watch.jobs import POINTS, Job, RoundsFile, Sweep


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that creates a run's folder with some of ten rounds."""

    def start(rounds: int, name: str = "0", overrides: tuple[str, ...] = ("strategy=fedavg", "seed=0")) -> Path:
        write_hydra(tmp_path / name, overrides)
        for number in range(1, rounds + 1):
            RunFolder(tmp_path / name).append_rounds(round_record(number, accuracy=number / 20, seconds=0.5))
        return tmp_path / name

    return start


def shown(path: Path) -> dict[str, Any]:
    job = Job(path)
    job.read()
    return job.shown("", "#000000", "0")


def test_running_job_shows_the_metric_of_the_user_that_decides(tmp_path: Path) -> None:
    """Its name comes from the configuration, before there is a summary."""
    path = tmp_path / "0"
    write_hydra(path, ("strategy=fedavg", "run.metric=early_hits"))
    config = OmegaConf.load(path / ".hydra" / "config.yaml")
    OmegaConf.save({**config, "metrics": ["mine.early_hits"]}, path / ".hydra" / "config.yaml")
    RunFolder(path).append_rounds(round_record(1, early_hits=0.25, early_hits_unweighted=0.5, accuracy=0.75))
    assert (shown(path)["metric"], shown(path)["score"]) == ("early hits", "0.250")


def test_rounds_are_read_as_they_are_appended(started: Callable[..., Path]) -> None:
    path = started(1)
    file = RoundsFile(path / ROUNDS)
    file.read()
    assert [each.number for each in file.rounds] == [1]
    with (path / ROUNDS).open("ab") as torn:
        torn.write(b'{"round": 2, "stra')
    file.read()
    assert [each.number for each in file.rounds] == [1]
    RunFolder(path).truncate_rounds(1)
    RunFolder(path).append_rounds(round_record(2, accuracy=0.25))
    file.read()
    assert [(each.number, each.metric, each.value) for each in file.rounds] == [
        (1, "accuracy", 0.05),
        (2, "accuracy", 0.25),
    ]


def test_resumed_run_loses_the_rounds_after_its_commit(started: Callable[..., Path]) -> None:
    path = started(4)
    file = RoundsFile(path / ROUNDS)
    file.read()
    RunFolder(path).truncate_rounds(2)
    file.read()
    assert [each.number for each in file.rounds] == [1, 2]


def test_running_job_has_its_pace_and_the_time_left(started: Callable[..., Path]) -> None:
    job = shown(started(4))
    assert (job["state"], job["round"], job["rounds"]) == ("running", 4, 10)
    assert (job["strategy"], job["metric"], job["score"], job["loss"]) == ("fedavg", "accuracy (%)", "20.0", "0.500")
    assert (job["pace"], job["left"]) == (0.5, 3.0)
    assert [(number, round(value, 9)) for number, value in job["curve"]] == [(1, 5), (2, 10), (3, 15), (4, 20)]


def test_states_follow_the_records(started: Callable[..., Path], tmp_path: Path) -> None:
    assert shown(started(0))["state"] == "starting"
    path = started(10, "1")
    assert shown(path)["state"] == "evaluating"
    RunFolder(path).write_failure("no space left", [])
    assert (shown(path)["state"], shown(path)["error"]) == ("failed", "no space left")
    assert shown(write_run(tmp_path / "2"))["state"] == "complete"


def test_resumed_job_runs_although_it_failed_before(started: Callable[..., Path]) -> None:
    path = started(4)
    RunFolder(path).write_failure("no space left", [])
    os.utime(path / "failure.json", (time.time() - 30,) * 2)
    RunFolder(path).append_rounds(round_record(5, accuracy=0.3))
    assert (shown(path)["state"], shown(path)["error"]) == ("running", None)


def test_killed_job_becomes_silent(started: Callable[..., Path]) -> None:
    path = started(4)
    os.utime(path / ROUNDS, (time.time() - 3600,) * 2)
    job = shown(path)
    assert (job["state"], job["left"]) == ("silent", None)


def test_slow_job_is_not_silent_between_its_rounds(tmp_path: Path) -> None:
    write_hydra(tmp_path, ["strategy=fedavg"])
    RunFolder(tmp_path).append_rounds(round_record(1, seconds=600.0))
    os.utime(tmp_path / ROUNDS, (time.time() - 3600,) * 2)
    assert shown(tmp_path)["state"] == "running"


def test_damaged_job_is_named_and_others_stay(started: Callable[..., Path], tmp_path: Path) -> None:
    started(3)
    write_file(started(3, "1") / "summary.json", b"{")
    jobs = Sweep(tmp_path).jobs()
    assert [job["state"] for job in jobs] == ["running", "failed"]
    assert "damaged" in jobs[1]["error"]


def test_jobs_come_in_order_with_what_differs(started: Callable[..., Path], tmp_path: Path) -> None:
    for number in range(11):
        started(1, str(number), ("strategy=fedavg", f"seed={number % 2}", "train.epochs=1", f"run.rounds={number}"))
    jobs = Sweep(tmp_path).jobs()
    assert [job["id"] for job in jobs] == list(map(str, range(11)))
    assert jobs[10]["label"] == "seed=0 run.rounds=10"
    assert len({job["colour"] for job in jobs}) == 1


def test_long_curve_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    lines = "".join(
        f'{{"round": {i}, "strategy": "fedavg", "devices": 3, "train_loss": 0.5, "bytes_down": 8, "bytes_up": 8, '
        f'"seconds": 0.1, "accuracy": {i / 5000}}}\n'
        for i in range(1, 2001)
    )
    (tmp_path / ROUNDS).write_text(lines)
    job = shown(tmp_path)
    assert job["round"] == 2000
    assert POINTS / 2 < len(job["curve"]) <= POINTS
    assert job["curve"][-1] == pytest.approx((2000, 40))


def test_watching_changes_nothing_in_a_run(started: Callable[..., Path], tmp_path: Path) -> None:
    started(3)
    write_run(tmp_path / "1")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    Sweep(tmp_path).jobs()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_empty_and_missing_folders_have_no_jobs(tmp_path: Path) -> None:
    assert Sweep(tmp_path).jobs() == []
    assert Sweep(tmp_path / "missing").jobs() == []
