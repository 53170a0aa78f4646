"""Commits of single rounds and of several short ones; a run that dies repeats the rounds that were not committed."""

import json
import math

import pytest
from deaths import DeathError, DiesAfterRound, Recorder

from odt_sim.errors import FileError
from odt_sim.observers.base import Observer
from odt_sim.persistence.commit import CommitFile
from odt_sim.simulation.run import commits, start
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedper import FedPer


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    """Let all rounds count as short, however slow the machine is."""
    monkeypatch.setattr(commits, "TOGETHER", math.inf)
    monkeypatch.setattr(start, "TOGETHER", math.inf)


@pytest.mark.parametrize("error", [DeathError(), FileError("no room")])
def test_run_that_dies_in_a_commit_repeats_its_round(results, simulation, tmp_path, monkeypatch, error):
    whole, write, recorder = results(FedAvg(), tmp_path / "whole", rounds=6), CommitFile.write, Recorder()

    def dying(file, commit):
        if file.round == 2:
            raise error
        write(file, commit)

    with monkeypatch.context() as patch:
        patch.setattr(CommitFile, "write", dying)
        with pytest.raises(type(error)):
            simulation(FedAvg(), tmp_path / "run", rounds=6).run(observers=[recorder])
    assert recorder.rounds == [1]
    again = Recorder()
    simulation(FedAvg(), tmp_path / "run", rounds=6).run(resume=True, observers=[again])
    assert again.rounds == [2, 3, 4, 5, 6]
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


@pytest.mark.parametrize("strategy", [FedAvg(), FedPer()], ids=lambda s: s.name)
@pytest.mark.parametrize("round", [1, 3, 5])
def test_run_that_dies_after_a_round_resumes(strategy, round, results, simulation, tmp_path):
    whole = results(strategy, tmp_path / "whole", rounds=6)
    with pytest.raises(DeathError):
        simulation(strategy, tmp_path / "run", rounds=6).run(observers=[DiesAfterRound(round)])
    recorder = Recorder()
    simulation(strategy, tmp_path / "run", rounds=6).run(resume=True, observers=[recorder])
    assert recorder.rounds == list(range(round + 1, 7))
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


def test_observers_get_a_round_once_it_is_on_disk(simulation, tmp_path):
    found = []

    class Looks(Observer):
        def on_round(self, record):
            found.append((tmp_path / "checkpoint" / f"server.{record.round}.safetensors").exists())

    simulation(FedAvg(), tmp_path, rounds=4).run(observers=[Looks()])
    assert found == [True] * 4


class FailsIn(FedAvg):
    """A strategy that fails on the first device of a round."""

    def __init__(self, round):
        self._round = round

    def local(self, device, broadcast):
        if device.round == self._round:
            raise DeathError
        return super().local(device, broadcast)


def test_committed_round_is_recorded_even_if_the_next_one_fails(simulation, tmp_path):
    recorder = Recorder()
    with pytest.raises(DeathError):
        simulation(FailsIn(3), tmp_path, rounds=4).run(observers=[recorder])
    assert recorder.rounds == [1, 2]


# --- rounds that are committed together --------------------------------------------------------------------------------


class Follows(Recorder):
    waits = True


@pytest.fixture
def committed(monkeypatch):
    """Return the rounds that are committed, with an error for one of them."""
    write, rounds, errors = CommitFile.write, [], {}

    def recorded(file, commit):
        if file.round in errors:
            raise errors.pop(file.round)
        rounds.append(file.round)
        write(file, commit)

    monkeypatch.setattr(CommitFile, "write", recorded)
    return rounds, errors


@pytest.mark.parametrize(("seconds", "rounds"), [(math.inf, [1, 8, 9]), (0.0, list(range(1, 10)))])
def test_short_rounds_are_committed_together(seconds, rounds, committed, results, simulation, tmp_path, monkeypatch):
    """All but the first and the last two; observers get the records of all, in order."""
    whole, recorder = results(FedAvg(), tmp_path / "whole", rounds=9, evaluate_every=9), Follows()
    committed[0].clear()
    monkeypatch.setattr(commits, "TOGETHER", seconds)
    simulation(FedAvg(), tmp_path / "run", rounds=9, evaluate_every=9).run(observers=[recorder])
    assert committed[0] == rounds
    assert recorder.rounds == list(range(1, 10))
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


@pytest.mark.parametrize(
    ("settings", "observers", "rounds"),
    [
        ({"evaluate_every": 2}, [Follows()], [1, 2, 4, 5, 6]),
        ({"evaluate_every": 6}, [Follows(), Recorder()], [1, 2, 3, 4, 5, 6]),
        ({"evaluate_every": 6, "callbacks": [lambda record: None]}, [Follows()], [1, 2, 3, 4, 5, 6]),
    ],
    ids=["evaluated rounds", "an observer that may stop", "a callback"],
)
def test_rounds_that_do_not_wait(settings, observers, rounds, committed, simulation, tmp_path):
    simulation(FedAvg(), tmp_path, rounds=6, **settings).run(observers=observers)
    assert committed[0] == rounds


def test_rounds_with_states_do_not_wait(committed, simulation, tmp_path):
    simulation(FedPer(), tmp_path, rounds=6, evaluate_every=6).run(observers=[Follows()])
    assert committed[0] == [1, 2, 3, 4, 5, 6]


def test_last_of_the_rounds_that_a_killed_run_recorded_may_be_slow(simulation, tmp_path, committed, monkeypatch):
    """A slow or an evaluated round triggers the commit of those before."""
    settings = {"rounds": 9, "evaluate_every": 9}
    committed[1][9] = DeathError()
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path, **settings).run(observers=[Follows()])
    (tmp_path / "checkpoint" / "server.8.safetensors").unlink()  # the records of rounds 2 to 9 are left
    monkeypatch.setattr(start, "TOGETHER", 7.0)
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record, seconds in zip(records, [1.0] * 8 + [60.0], strict=True):
        record["seconds"] = seconds
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    again = Follows()
    simulation(FedAvg(), tmp_path, **settings).run(resume=True, observers=[again])
    assert again.rounds == list(range(2, 10))


@pytest.mark.parametrize("round", [1, 8, 9])
def test_run_that_dies_in_a_common_commit_repeats_its_rounds(round, committed, results, simulation, tmp_path):
    """Their records are already on disk and are truncated."""
    settings = {"rounds": 9, "evaluate_every": 9}
    whole, recorder, again = results(FedAvg(), tmp_path / "whole", **settings), Follows(), Follows()
    committed[1][round] = DeathError()
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path / "run", **settings).run(observers=[recorder])
    simulation(FedAvg(), tmp_path / "run", **settings).run(resume=True, observers=[again])
    assert recorder.rounds + again.rounds == list(range(1, 10))
    assert recorder.rounds == list(range(1, {1: 1, 8: 2, 9: 9}[round]))
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


def test_damaged_common_commit_gives_way_to_the_one_before(committed, results, simulation, tmp_path):
    settings = {"rounds": 9, "evaluate_every": 9}
    whole = results(FedAvg(), tmp_path / "whole", **settings)
    committed[1][9] = DeathError()
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path / "run", **settings).run(observers=[Follows()])
    (tmp_path / "run" / "checkpoint" / "server.8.safetensors").write_bytes(b"damaged")
    again = Follows()
    simulation(FedAvg(), tmp_path / "run", **settings).run(resume=True, observers=[again])
    assert again.rounds == [2, 3, 4, 5, 6, 7, 8, 9]
    assert "server.8.safetensors" in again.warnings[0]
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


def test_rounds_that_wait_are_committed_if_the_next_one_fails(committed, simulation, tmp_path):
    recorder = Follows()
    with pytest.raises(DeathError):
        simulation(FailsIn(6), tmp_path, rounds=9, evaluate_every=9).run(observers=[recorder])
    assert committed[0] == [1, 5]
    assert recorder.rounds == [1, 2, 3, 4, 5]
