"""The report uses the round with the best validation result, whatever happens after it."""

import json
import os
from dataclasses import replace
from pathlib import Path
from threading import Lock

import pytest
from deaths import DeathError

from odt_sim import Fleet, TrainingPlan
from odt_sim.errors import CheckpointError
from odt_sim.metrics.rounds import reported_round
from odt_sim.persistence.commit import CommitFile
from odt_sim.persistence.storage import Folder
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.strategies.averaging.fedavg import FedAvg


def rows(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def files(folder):
    return sorted(path.name.removesuffix(".safetensors") for path in (folder / "checkpoint").rglob("*.*.safetensors"))


@pytest.fixture(scope="module")
def two(clouds, spread):
    """Return the clouds over 2 devices."""
    return spread(clouds, 2)


@pytest.fixture
def settings(two):
    return {"data": two, "fleet": Fleet(), "rounds": 4, "evaluate_every": 1, "plan": TrainingPlan(4, 0.05)}


def test_worsening_run_reports_its_best_round(user, results, settings, tmp_path):
    found = results(user.GetsWorse(), tmp_path / "whole", **settings)
    reported = found.summary["reported_round"]
    validated = [row["validation_accuracy"] for row in found.rounds]
    assert reported == 1 + validated.index(max(validated)) <= 2
    assert max(validated[2:]) < max(validated)
    stopped = results(user.GetsWorse(), tmp_path / "stopped", **{**settings, "rounds": reported})
    assert found.devices == stopped.devices
    kept = [f"{name}.{round}" for name in ("0", "1", "server") for round in (reported, 3, 4)]
    assert files(tmp_path / "whole") == sorted(kept)


def test_last_round_is_reported_without_validation_examples(user, results, settings, two, tmp_path):
    offsets = two.offsets.copy()
    offsets[:, 2] = offsets[:, 1]
    data = replace(two, offsets=offsets)
    found = results(user.GetsWorse(), tmp_path, **{**settings, "data": data})
    assert found.summary["reported_round"] == 4
    assert files(tmp_path) == [f"{name}.{round}" for name in ("0", "1", "server") for round in (3, 4)]
    assert not any(name.startswith("validation_") for row in found.rounds for name in row)


class Dying:
    """Ends the run's process at the n-th write or removal of a file, counted over all threads."""

    def __init__(self, patch, at):
        self.done, self._at, self._lock = 0, at, Lock()
        for method in ("add", "replace", "delete"):
            patch.setattr(Folder, method, self._counted(method, getattr(Folder, method)))

    def _counted(self, method, call):
        def counted(folder, names, *content):
            for name in names if method == "delete" else [names]:
                with self._lock:
                    self.done += 1
                    if self.done == self._at and method == "add":
                        call(folder, name, content[0][:100])  # a torn write
                    if self.done >= self._at:
                        raise DeathError
                    call(folder, [name] if method == "delete" else name, *content)

        return counted


@pytest.fixture
def killed_at_each_moment(user, results, simulation, settings, tmp_path, monkeypatch):
    """Return a function that kills a run at each write and removal, resumes it, and returns their number."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # matters after a power failure only
    monkeypatch.setattr(os, "fdatasync", lambda file: None)

    def kill(backend=SerialBackend):
        undisturbed = results(user.GetsWorse(), tmp_path / "undisturbed", **settings)
        moment, died = 0, True
        while died:
            moment += 1
            folder = tmp_path / str(moment)
            with monkeypatch.context() as patch:
                dying = Dying(patch, moment)
                try:
                    simulation(user.GetsWorse(), folder, **settings, backend=backend()).run()
                    died = False
                except DeathError:
                    pass
            simulation(user.GetsWorse(), folder, **settings, backend=backend()).run(resume=True)
            type(undisturbed).read(folder).assert_same_bits(undisturbed)
        assert dying.done == moment - 1
        return moment - 1

    return kill


@pytest.mark.slow
def test_run_killed_at_any_write_resumes_to_the_same_bits(killed_at_each_moment):
    assert killed_at_each_moment() > 4 * 2 + 4 * 2  # writes of states and commits, and some removals


def test_run_is_prolonged_past_its_best_round(user, results, simulation, settings, tmp_path):
    whole = results(user.GetsWorse(), tmp_path / "whole", **settings)
    simulation(user.GetsWorse(), tmp_path / "longer", **{**settings, "rounds": 3}).run()
    simulation(user.GetsWorse(), tmp_path / "longer", **settings).run(resume=True)
    type(whole).read(tmp_path / "longer").assert_same_bits(whole)


def test_best_round_stays_until_a_better_one_is_committed(simulation, settings, tmp_path, monkeypatch):
    """The better round may not come about again on resume."""
    settings |= {"rounds": 12}
    bests = [row["round"] for row in improvements(simulation, settings, tmp_path / "whole")]
    first, second = bests[:2]
    write = CommitFile.write

    def dies_at_the_second(file, commit):
        if file.round == second:
            raise DeathError
        write(file, commit)

    with monkeypatch.context() as patch:
        patch.setattr(CommitFile, "write", dies_at_the_second)
        with pytest.raises(DeathError):
            simulation(FedAvg(), tmp_path / "died", **settings).run()
    assert f"server.{first}" in files(tmp_path / "died")
    again = simulation(FedAvg(), tmp_path / "died", **{**settings, "rounds": second, "evaluate_every": 100})
    assert again.run(resume=True)["reported_round"] == second  # the last round is always evaluated
    assert files(tmp_path / "died") == sorted({f"server.{round}" for round in (first, second - 1, second)})


def improvements(simulation, settings, folder):
    """Return the records of the rounds that validate better than all before."""
    simulation(FedAvg(), folder, **settings).run()
    found = rows(folder, "rounds.jsonl")
    return [row for row in found if reported_round(found[: row["round"]], "accuracy") == row["round"]]


def test_leftovers_of_a_killed_commit_are_removed(user, simulation, settings, tmp_path):
    simulation(user.GetsWorse(), tmp_path, **settings).run()
    checkpoint = tmp_path / "checkpoint"
    before = sorted(checkpoint.iterdir())
    (checkpoint / ".server.3.safetensors.0a1b2c3d.part").touch()
    (checkpoint / "notes").touch()
    simulation(user.GetsWorse(), tmp_path, **settings).run(resume=True)
    assert sorted(checkpoint.iterdir()) == sorted([*before, checkpoint / "notes"])


@pytest.mark.parametrize(
    ("lose", "message"),
    [
        (Path.unlink, "no such checkpoint; .*, or start a new run: round {}, which validates best, needs it"),
        (Path.touch, "damaged or not a checkpoint"),
    ],
)
def test_run_without_its_reported_commit_is_not_resumed(user, simulation, settings, tmp_path, lose, message):
    reported = simulation(user.GetsWorse(), tmp_path, **settings).run()["reported_round"]
    path = tmp_path / "checkpoint" / f"server.{reported}.safetensors"
    path.unlink()
    path.touch()
    lose(path)
    with pytest.raises(CheckpointError, match=rf"server\.{reported}\.safetensors: {message.format(reported)}"):
        simulation(user.GetsWorse(), tmp_path, **settings).run(resume=True)
