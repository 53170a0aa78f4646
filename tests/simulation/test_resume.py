"""Resuming interrupted runs with the same bits, and refusing to mix two runs."""

import json
import shutil
import time
from dataclasses import replace
from itertools import product
from unittest.mock import ANY

import numpy as np
import pytest
from deaths import DeathError, DiesAfterRound, Recorder
from fsspec.implementations.memory import MemoryFileSystem

from odt_sim import Fleet, TrainingPlan
from odt_sim.errors import CheckpointError, SimulationError
from odt_sim.observers.base import Observer
from odt_sim.persistence.commit import CommitFile
from odt_sim.persistence.object_store import ObjectStore
from odt_sim.persistence.run_folder import CODE
from odt_sim.persistence.storage import LOCK, Folder
from odt_sim.simulation.executors.ray import RayBackend
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.simulation.run.code import code_digest
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.shared_parts.fedper import FedPer


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(folder):
    """Return the content of all files but locks."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("strategy", [Local(), FedPer(), FedAvg()], ids=lambda s: s.name)
def test_interrupted_run_resumes_to_the_same_bits(strategy, results, simulation, tmp_path):
    whole = results(strategy, tmp_path / "whole", rounds=6)
    halves = tmp_path / "halves"
    with pytest.raises(DeathError):
        simulation(strategy, halves, rounds=6).run(observers=[DiesAfterRound(3)])
    recorder = Recorder()
    simulation(strategy, halves, rounds=6).run(resume=True, observers=[recorder])
    assert recorder.rounds == [4, 5, 6]
    type(whole).read(halves).assert_same_bits(whole)


def test_run_with_states_behind_a_symlink_resumes(results, simulation, tmp_path):
    whole = results(FedPer(), tmp_path / "whole")
    with pytest.raises(DeathError):
        simulation(FedPer(), tmp_path / "run").run(observers=[DiesAfterRound(2)])
    states = tmp_path / "run" / "checkpoint" / "devices"
    states.rename(tmp_path / "disk")
    states.symlink_to(tmp_path / "disk")
    simulation(FedPer(), tmp_path / "run").run(resume=True)
    type(whole).read(tmp_path / "run").assert_same_bits(whole)  # old states there are removed, too


def test_prolonged_run_has_no_summary_until_it_ends(simulation, tmp_path):
    whole = simulation(FedAvg(), tmp_path, rounds=2).run()
    assert simulation(FedAvg(), tmp_path, rounds=2).run(resume=True) == {**whole, "seconds": ANY}
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path, rounds=4).run(resume=True, observers=[DiesAfterRound(3)])
    assert not (tmp_path / "summary.json").exists()
    assert not (tmp_path / "devices.jsonl").exists()
    assert simulation(FedAvg(), tmp_path, rounds=4).run(resume=True)["rounds"] == 4


def test_states_of_old_rounds_are_removed(results, tmp_path):
    found = results(Local(), tmp_path, rounds=5)
    assert found.summary["reported_round"] in (2, 4, 5)  # the evaluated rounds
    best_before = max(found.rounds[:4], key=lambda row: row.get("validation_accuracy", -1))["round"]
    rounds = sorted({best_before, 4, 5})
    assert {(round, int(name.partition("/")[0])) for round, name in found.states} == set(product(rounds, range(7)))
    assert found.files == [f"server.{round}.safetensors" for round in rounds]
    assert found.tensors["versions"][:, 1].tolist() == [5] * 7


def test_foreign_files_stay_in_the_storage(simulation, tmp_path):
    storage = tmp_path / "storage"
    theirs = [
        "server.mine",
        "devices/phone.safetensors",
        "devices/000/mine.safetensors",
        ".server.backup",
        ".server.1.safetensors.20251122",
        "probe.txt",
    ]
    left = [
        ".server.1.safetensors.0123abcd.part",
        ".probe.0123abcd.part",
        "devices/000/1.9.safetensors",
    ]
    for name in theirs + left:
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).write_bytes(b"mine")
    simulation(FedAvg(), tmp_path / "run", rounds=1, storage=storage).run()
    found = {str(path.relative_to(storage)) for path in storage.rglob("*") if path.is_file()}
    assert found == {*theirs, "server.1.safetensors", LOCK}


def test_leftovers_in_the_run_folder_are_removed_on_resume(simulation, tmp_path):
    simulation(FedAvg(), tmp_path, rounds=1).run()
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in (
        "initial.tflite",
        "model.tflite",
        "rounds.jsonl",
        "devices.jsonl",
        "summary.json",
        "failure.json",
        "notes",
    ):
        (tmp_path / f".{name}.0a1b2c3d.part").touch()
    simulation(FedAvg(), tmp_path, rounds=1).run(resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, ".notes.0a1b2c3d.part"])


def test_states_are_synced_before_a_commit_refers_to_them(simulation, tmp_path, monkeypatch):
    order = []
    add, sync, write = Folder.add, Folder.sync, CommitFile.write
    monkeypatch.setattr(Folder, "add", lambda *given: (order.append(given[1].split("/")[0]), add(*given)))
    monkeypatch.setattr(Folder, "sync", lambda folder: (order.append("sync"), sync(folder)))
    monkeypatch.setattr(CommitFile, "write", lambda file, commit: (order.append(file.round), write(file, commit)))
    simulation(Local(), tmp_path / "local", rounds=2, evaluate_every=2).run()
    first, second = ([*["devices"] * 2, "sync"] for round in (1, 2))
    assert order == [*first, 1, *second, 2]
    order.clear()
    simulation(FedAvg(), tmp_path / "fedavg", rounds=2, evaluate_every=2).run()
    assert order == [1, 2]  # without states there is nothing to sync


def test_rounds_are_trained_evaluated_and_committed_one_after_another(simulation, tmp_path, monkeypatch):
    order = []
    write = CommitFile.write

    def written(file, commit):
        order.append(f"commit {file.round}")
        write(file, commit)

    monkeypatch.setattr(CommitFile, "write", written)

    class Listening(SerialBackend):
        def run(self, assignment, take):
            order.append(f"{assignment.tasks[0].kind} {assignment.tasks[0].round}")
            super().run(assignment, take)

    class Observes(Observer):
        def on_round(self, record):
            order.append(f"observed {record['round']}")

    run = simulation(FedAvg(), tmp_path, rounds=3, evaluate_every=2, backend=Listening())
    run.run(observers=[Observes()])
    assert order[:-1] == [
        *("train 1", "commit 1", "observed 1"),
        *("train 2", "evaluate 2", "commit 2", "observed 2"),
        *("train 3", "evaluate 3", "commit 3", "observed 3"),
    ]
    assert order[-1].startswith("final")


def test_death_between_state_writes_and_commit_loses_nothing(results, simulation, user, tmp_path):
    marker = tmp_path / "disturbed" / "marker"
    marker.parent.mkdir()
    marker.touch()
    whole = results(user.RaisesOnce(marker), tmp_path / "whole", rounds=4)
    marker.unlink()
    folder = tmp_path / "disturbed" / "run"
    with pytest.raises(SimulationError, match="failed in aggregate in round 3 with RuntimeError: the coordinator dies"):
        simulation(user.RaisesOnce(marker), folder, rounds=4).run()
    rounds = {path.name.split(".")[1] for path in folder.glob("checkpoint/devices/*/*")}
    assert {"2", "3"} <= rounds  # the new states beside the committed ones
    assert [row["round"] for row in lines(folder / "rounds.jsonl")] == [1, 2]
    simulation(user.RaisesOnce(marker), folder, rounds=4).run(resume=True)
    type(whole).read(folder).assert_same_bits(whole)


def test_line_of_an_uncommitted_round_is_dropped(results, simulation, tmp_path, monkeypatch):
    whole = results(FedAvg(), tmp_path / "whole")
    folder = tmp_path / "died"
    dying = simulation(FedAvg(), folder)
    write = CommitFile.write
    with monkeypatch.context() as patch:
        patch.setattr(CommitFile, "write", lambda self, commit: die_or(write, self, commit))
        with pytest.raises(DeathError):
            dying.run()
    assert [row["round"] for row in lines(folder / "rounds.jsonl")] == [1, 2]
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "tor')
    simulation(FedAvg(), folder).run(resume=True)
    type(whole).read(folder).assert_same_bits(whole)


def die_or(write, file, commit):
    if commit.round == 2:
        raise DeathError
    write(file, commit)


def test_finished_run_is_resumed_and_prolonged(simulation, tmp_path):
    simulation(FedAvg(), tmp_path, rounds=2).run()
    before = contents(tmp_path)
    simulation(FedAvg(), tmp_path, rounds=2).run(resume=True)
    assert contents(tmp_path) == before
    longer = simulation(FedAvg(), tmp_path, rounds=3).run(resume=True)
    assert (longer["rounds"], len(lines(tmp_path / "rounds.jsonl"))) == (3, 3)


def test_resume_without_a_commit_starts_a_run(simulation, tmp_path):
    simulation(FedAvg(), tmp_path).run(resume=True)
    assert len(lines(tmp_path / "rounds.jsonl")) == 3


def test_folder_that_holds_a_run_is_refused_untouched(simulation, tmp_path):
    simulation(FedAvg(), tmp_path / "run", rounds=1).run()
    before = contents(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"run: this folder already contains a run; resume it with run\(resume=True\)"
    ):
        simulation(Local(), tmp_path / "run").run()
    with pytest.raises(CheckpointError, match=r"run/checkpoint/server\.1\.safetensors: already contains a stored run"):
        simulation(Local(), tmp_path / "other", storage=tmp_path / "run" / "checkpoint").run()
    assert contents(tmp_path) == before


def test_folder_of_a_failed_start_can_be_used_again(simulation, tmp_path):
    (tmp_path / "failure.json").write_text('{"error": "a typing error", "overrides": []}')
    simulation(FedAvg(), tmp_path, rounds=1).run()
    assert not (tmp_path / "failure.json").exists()


def test_storage_outside_the_run_folder(simulation, results, tmp_path):
    settings = {"storage": tmp_path / "fast", "rounds": 2}
    with pytest.raises(DeathError):
        simulation(Local(), tmp_path / "run", **settings).run(observers=[DiesAfterRound(1)])
    simulation(Local(), tmp_path / "run", **settings).run(resume=True)
    assert not (tmp_path / "run" / "checkpoint").exists()
    here = results(Local(), tmp_path / "here", rounds=2)
    assert (tmp_path / "run" / "devices.jsonl").read_bytes() == here.devices


def test_failed_run_removes_nothing_afterwards(simulation, tmp_path, monkeypatch):
    delete = Folder.delete
    monkeypatch.setattr(Folder, "delete", lambda *given: (time.sleep(0.2), delete(*given)))
    with pytest.raises(DeathError):
        simulation(Local(), tmp_path).run(observers=[DiesAfterRound(3)])
    assert {path.name.split(".")[1] for path in tmp_path.glob("checkpoint/devices/*/*")} == {"2", "3"}


def lose_storage(run, storage):
    shutil.rmtree(storage)


def lose_records(run, storage):
    (run / "rounds.jsonl").unlink()


def lose_a_line(run, storage):
    kept = lines(run / "rounds.jsonl")[1:]
    (run / "rounds.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in kept))


@pytest.mark.parametrize(
    ("lose", "found"),
    [
        (lose_storage, "has 4 rounds, but the checkpoint in .*fast has 0"),
        (lose_records, "has 0 rounds, but the checkpoint in .*fast has 4"),
        (lose_a_line, "has 3 rounds, but the checkpoint in .*fast has 4"),
    ],
)
def test_run_with_lost_records_or_checkpoint_is_refused_untouched(lose, found, simulation, tmp_path):
    settings = {"storage": tmp_path / "fast", "rounds": 6}
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path / "run", **settings).run(observers=[DiesAfterRound(4)])
    lose(tmp_path / "run", tmp_path / "fast")
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=rf"rounds\.jsonl: {found}; resume with the run's own run\.storage"):
        simulation(FedAvg(), tmp_path / "run", **settings).run(resume=True)
    assert contents(tmp_path) == before


def other_labels(fleet_data):
    return replace(fleet_data, y=fleet_data.y[::-1].copy())


def other_inputs(fleet_data):
    return replace(fleet_data, x=np.nextafter(fleet_data.x, 9, dtype=np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": FedPer()}, "with strategy fedavg, but this run has fedper"),
        ({"seed": 1}, "with seed 0, but this run has 1"),
        ({"fleet": Fleet(unseen=2)}, r"with fleet\.unseen 1, but this run has 2"),
        ({"fleet": Fleet(unseen=1, cohort=3)}, r"with fleet\.cohort None, but this run has 3"),
        ({"fleet": Fleet(unseen=1, evaluated=3)}, r"with fleet\.evaluated None, but this run has 3"),
        ({"plan": TrainingPlan(2, 0.05)}, r"with train\.epochs 1, but this run has 2"),
        ({"plan": TrainingPlan(1, 0.5)}, r"with train\.learning_rate 0\.05, but this run has 0\.5"),
        ({"data": other_labels}, "with data clouds [0-9a-f]{16}, but this run has clouds [0-9a-f]{16}"),
        ({"data": other_inputs}, "with data clouds [0-9a-f]{16}, but this run has clouds [0-9a-f]{16}"),
        ({"model": "adam"}, "belongs to a different model than"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_resume_of_another_run_is_refused(simulation, fleet_data, tmp_path, request, change, message):
    if "data" in change:
        change = {"data": change["data"](fleet_data)}
    if "model" in change:
        change = {"model": request.getfixturevalue(change["model"])}
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path).run(observers=[DiesAfterRound(2)])
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        simulation(**{"strategy": FedAvg(), "directory": tmp_path, **change}).run(resume=True)
    assert contents(tmp_path) == before


def test_resume_with_other_hyperparameters_is_refused(simulation, tmp_path):
    with pytest.raises(DeathError):
        simulation(FedAvgFineTune(2), tmp_path).run(observers=[DiesAfterRound(2)])
    message = r"strategy.max_epochs 2, but this run has 3; resume with the same"
    with pytest.raises(CheckpointError, match=message):
        simulation(FedAvgFineTune(3), tmp_path).run(resume=True)


@pytest.mark.parametrize("name", ["scales", "_scales"])
@pytest.mark.parametrize(("one", "other"), [([1.0, 2.0], [1.0, 3.0]), ({"a": 1}, {"a": 2}), (0.5, None), ({3, 1}, {2})])
def test_resume_with_other_attributes_is_refused(simulation, tmp_path, name, one, other):
    strategies = FedAvg(), FedAvg()
    for strategy, value in zip(strategies, (one, other), strict=True):
        setattr(strategy, name, value)
    with pytest.raises(DeathError):
        simulation(strategies[0], tmp_path).run(observers=[DiesAfterRound(2)])
    with pytest.raises(CheckpointError, match=r"with strategy\.scales .+, but this run has "):
        simulation(strategies[1], tmp_path).run(resume=True)


def redefined(line):
    """Return a strategy of a class that is redefined as in a notebook, with a given line."""
    names = {"__name__": "__main__", "FedAvg": FedAvg}
    method = f"    def local(self, device, broadcast):\n        {line}\n        return super().local(device, broadcast)"
    exec(f"class Mine(FedAvg):\n{method}", names)
    return names["Mine"]()


@pytest.mark.parametrize(("line", "warns"), [("pass  # nothing", False), ("device.train(2)", True)])
def test_resume_with_changed_code_of_a_strategy_warns(simulation, tmp_path, line, warns):
    with pytest.raises(DeathError):
        simulation(redefined("pass"), tmp_path).run(observers=[DiesAfterRound(2)])
    recorder = Recorder()
    simulation(redefined(line), tmp_path).run(resume=True, observers=[recorder])
    message = (
        "strategy Mine: its code has changed since round 2; for results of a single version, start a new run "
        "in another folder"
    )
    assert recorder.warnings == [message] * warns


@pytest.mark.parametrize(
    "recorded", [{"odt_sim": "0" * 12}, {}], ids=["another version", "a version that recorded none"]
)
def test_resume_with_changed_code_of_odt_sim_warns(simulation, tmp_path, recorded):
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path).run(observers=[DiesAfterRound(2)])
    (tmp_path / CODE).write_text(json.dumps(recorded))
    warned = []
    for _ in range(2):
        recorder = Recorder()
        simulation(FedAvg(), tmp_path).run(resume=True, observers=[recorder])
        warned += recorder.warnings
    (message,) = warned  # once: the folder has the new code then
    assert message.startswith("odt_sim has changed since round 2: the changelog lists settings whose results changed")


def test_code_of_odt_sim_has_no_digest():
    assert code_digest(FedAvgFineTune(2)) is None
    assert code_digest(redefined("pass")) is not None


# --- storage by URI ----------------------------------------------------------------------------------------------------


@pytest.fixture
def memory():
    yield "memory://odt_sim/run"
    MemoryFileSystem.store.clear()


@pytest.mark.parametrize("strategy", [Local(), FedPer(), FedAvg()], ids=lambda s: s.name)
def test_run_in_an_object_store_resumes_to_the_same_bits(strategy, results, simulation, tmp_path, memory):
    whole = results(strategy, tmp_path / "whole", rounds=5)
    settings = {"storage": memory, "rounds": 5}
    with pytest.raises(DeathError):
        simulation(strategy, tmp_path / "run", **settings).run(observers=[DiesAfterRound(3)])
    ObjectStore(memory).add("devices/000/0.4.safetensors", b"torn")
    simulation(strategy, tmp_path / "run", **settings).run(resume=True)
    assert not (tmp_path / "run" / "checkpoint").exists()
    assert (tmp_path / "run" / "devices.jsonl").read_bytes() == whole.devices
    here = tmp_path / "whole" / "checkpoint"
    assert sorted(ObjectStore(memory).names()) == sorted(Folder(here).names())
    for name in Folder(here).names():
        assert ObjectStore(memory).read(name) == Folder(here).read(name)
    with pytest.raises(CheckpointError, match="already contains a stored run"):
        simulation(strategy, tmp_path / "other", **settings).run()


def test_memory_of_another_process_is_not_resumed(simulation, tmp_path, memory):
    simulation(FedAvg(), tmp_path, storage=memory).run()
    MemoryFileSystem.store.clear()  # as in another process
    message = (
        rf"rounds\.jsonl: has 3 rounds, but the checkpoint in {memory} has 0; it is lost when its process ends; start"
    )
    with pytest.raises(CheckpointError, match=message):
        simulation(FedAvg(), tmp_path, storage=memory).run(resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["file", "local"])  # a folder, and the same through fsspec
@pytest.mark.usefixtures("ray_session")
def test_workers_use_storage_by_uri(scheme, results, simulation, tmp_path):
    whole = results(Local(), tmp_path / "whole")
    settings = {"storage": f"{scheme}://{tmp_path}/shared", "backend": RayBackend(actors=2)}
    with pytest.raises(DeathError):
        simulation(Local(), tmp_path / "run", **settings).run(observers=[DiesAfterRound(2)])
    simulation(Local(), tmp_path / "run", **settings).run(resume=True)
    assert (tmp_path / "run" / "devices.jsonl").read_bytes() == whole.devices
    kept = [Folder(path) for path in (tmp_path / "shared", tmp_path / "whole" / "checkpoint")]
    assert set(kept[0].names()) - {LOCK} == set(kept[1].names())
