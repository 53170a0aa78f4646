"""Going on with a run that died, to the same bits; and refusing what would mix two runs."""

import json

import pytest

from odt_sim import Fleet, TrainingPlan
from odt_sim.data.federated import FederatedData
from odt_sim.errors import CheckpointError, SimulationError
from odt_sim.simulation import store
from odt_sim.simulation.commit import CommitFile
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.fedper import FedPer
from odt_sim.strategies.local import Local


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class DeathError(Exception):
    """The coordinator's death."""


def die_in(round):
    def on_round(record):
        if record["round"] == round:
            raise DeathError

    return on_round


@pytest.mark.parametrize("strategy", [Local(), FedPer(), FedAvg()], ids=lambda s: s.name)
def test_a_run_that_died_goes_on_to_the_same_bits(strategy, results, simulation, tmp_path):
    whole = results(strategy, tmp_path / "whole", rounds=6)
    halves = tmp_path / "halves"
    with pytest.raises(DeathError):
        simulation(strategy, halves, rounds=6).run(on_round=die_in(3))
    seen = []
    simulation(strategy, halves, rounds=6).run(resume=True, on_round=lambda record: seen.append(record["round"]))
    assert seen == [4, 5, 6]
    type(whole).read(halves).assert_same_bits(whole)


def test_states_of_old_rounds_are_dropped(results, tmp_path):
    found = results(Local(), tmp_path)
    rounds = sorted({found.summary["reported_round"], 3})
    assert rounds in ([2, 3], [3])  # those that were evaluated
    states = [f"devices/000/{device}.{round}.safetensors" for device in range(7) for round in rounds]
    assert found.files == [*states, f"reported.{rounds[0]}.safetensors", "server.safetensors"]
    assert found.tensors["versions"].tolist() == [3] * 7


def test_states_are_on_the_disk_before_a_commit_refers_to_them(simulation, tmp_path, monkeypatch):
    order = []
    sync, write = store.sync_folder, CommitFile.write
    monkeypatch.setattr(store, "sync_folder", lambda folder: (order.append(folder.name), sync(folder)))
    monkeypatch.setattr(CommitFile, "write", lambda file, commit: (order.append(file.path.stem), write(file, commit)))
    simulation(Local(), tmp_path / "local", rounds=2, evaluate_every=2).run()
    assert order == ["devices", "server", "devices", "reported.2", "server"]
    order.clear()
    simulation(FedAvg(), tmp_path / "fedavg", rounds=2, evaluate_every=2).run()
    assert order == ["server", "reported.2", "server"]  # devices that keep nothing have nothing to wait for


def test_nothing_is_lost_between_the_devices_writes_and_the_commit(results, simulation, user, tmp_path):
    marker = tmp_path / "marker"
    marker.touch()
    whole = results(user.RaisesOnce(marker), tmp_path / "whole", rounds=4)
    marker.unlink()
    folder = tmp_path / "died"
    with pytest.raises(SimulationError, match="failed in aggregate in round 3 with RuntimeError: the coordinator dies"):
        simulation(user.RaisesOnce(marker), folder, rounds=4).run()
    states = {path.name for path in folder.rglob("*.safetensors")}
    assert {"1.2.safetensors", "1.3.safetensors"} <= states  # the new ones beside the committed ones
    assert [row["round"] for row in lines(folder / "rounds.jsonl")] == [1, 2]
    simulation(user.RaisesOnce(marker), folder, rounds=4).run(resume=True)
    type(whole).read(folder).assert_same_bits(whole)


def test_a_line_whose_round_was_not_committed_is_dropped(results, simulation, tmp_path, monkeypatch):
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
    if (commit.round, file.path.stem) == (2, "server"):
        raise DeathError
    write(file, commit)


def test_a_finished_run_can_be_resumed_and_prolonged(simulation, tmp_path):
    simulation(FedAvg(), tmp_path, rounds=2).run()
    before = contents(tmp_path)
    simulation(FedAvg(), tmp_path, rounds=2).run(resume=True)
    assert contents(tmp_path) == before
    longer = simulation(FedAvg(), tmp_path, rounds=3).run(resume=True)
    assert (longer["rounds"], len(lines(tmp_path / "rounds.jsonl"))) == (3, 3)


def test_resuming_where_nothing_was_committed_starts_anew(simulation, tmp_path):
    simulation(FedAvg(), tmp_path).run(resume=True)
    assert len(lines(tmp_path / "rounds.jsonl")) == 3


def test_a_folder_that_holds_a_run_is_refused_untouched(simulation, tmp_path):
    simulation(FedAvg(), tmp_path / "run", rounds=1).run()
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=r"run: this folder or its checkpoint's holds a run already"):
        simulation(Local(), tmp_path / "run").run()
    with pytest.raises(CheckpointError, match="holds a run already"):
        simulation(Local(), tmp_path / "other", storage=tmp_path / "run" / "checkpoint").run()
    assert contents(tmp_path) == before


def test_a_folder_where_a_run_failed_at_once_can_be_used_again(simulation, tmp_path):
    (tmp_path / "failure.json").write_text('{"error": "a typing error", "overrides": []}')
    simulation(FedAvg(), tmp_path, rounds=1).run()
    assert not (tmp_path / "failure.json").exists()


def test_storage_may_be_elsewhere(simulation, results, tmp_path):
    settings = {"storage": tmp_path / "fast", "rounds": 2}
    with pytest.raises(DeathError):
        simulation(Local(), tmp_path / "run", **settings).run(on_round=die_in(1))
    simulation(Local(), tmp_path / "run", **settings).run(resume=True)
    assert not (tmp_path / "run" / "checkpoint").exists()
    here = results(Local(), tmp_path / "here", rounds=2)
    assert (tmp_path / "run" / "devices.jsonl").read_bytes() == here.devices


def other_data(fleet_data):
    arrays = {**fleet_data.arrays(), "y": fleet_data.y[::-1].copy()}
    return FederatedData.from_arrays(fleet_data.name, fleet_data.classes, arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": FedPer()}, "with strategy fedavg, this one has fedper"),
        ({"seed": 1}, "with seed 0, this one has 1"),
        ({"fleet": Fleet(unseen=2)}, r"with fleet\.unseen 1, this one has 2"),
        ({"fleet": Fleet(unseen=1, cohort=3)}, r"with fleet\.cohort None, this one has 3"),
        ({"plan": TrainingPlan(2, 0.05)}, r"with train\.epochs 1, this one has 2"),
        ({"plan": TrainingPlan(1, 0.5)}, r"with train\.learning_rate 0\.05, this one has 0\.5"),
        ({"data": other_data}, "with data clouds [0-9a-f]{16}, this one has clouds [0-9a-f]{16}"),
        ({"model": "adam"}, "of another model than"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_another_run_is_not_gone_on_with(simulation, fleet_data, tmp_path, request, change, message):
    if "data" in change:
        change = {"data": change["data"](fleet_data)}
    if "model" in change:
        change = {"model": request.getfixturevalue(change["model"])}
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path).run(on_round=die_in(2))
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        simulation(**{"strategy": FedAvg(), "directory": tmp_path, **change}).run(resume=True)
    assert contents(tmp_path) == before


def test_hyper_parameters_of_the_strategy_count(simulation, tmp_path):
    with pytest.raises(DeathError):
        simulation(FedAvgFineTune(2), tmp_path).run(on_round=die_in(2))
    message = r"strategy.max_epochs 2, this one has 3; resume with the same"
    with pytest.raises(CheckpointError, match=message):
        simulation(FedAvgFineTune(3), tmp_path).run(resume=True)


def test_a_damaged_checkpoint_is_refused(simulation, tmp_path):
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path).run(on_round=die_in(2))
    path = tmp_path / "checkpoint" / "server.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"server\.safetensors: damaged"):
        simulation(FedAvg(), tmp_path).run(resume=True)
