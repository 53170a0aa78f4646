"""The commit of a short round overlaps with the next round; a run that dies meanwhile repeats both."""

import json
import math
from contextlib import nullcontext
from threading import Event

import pytest
from deaths import DeathError, DiesAfterRound, Recorder

from odt_sim.errors import FileError
from odt_sim.observers.base import Observer, Observers, RunInfo
from odt_sim.persistence.commit import Commit, CommitFile
from odt_sim.persistence.versions import Versions
from odt_sim.simulation import commits, start
from odt_sim.strategies.base import ServerState
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedper import FedPer
from tests.written_runs import round_record


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    """Let all rounds count as short, however slow the machine is."""
    monkeypatch.setattr(commits, "SHORT", math.inf)
    monkeypatch.setattr(commits, "TOGETHER", math.inf)


class Trains(FedAvg):
    """FedAvg that signals when the devices of round 3 train."""

    name = "fedavg"
    watched = 3

    def __init__(self):
        super().__init__()
        self._begun = Event()

    def local(self, device, broadcast):
        if device.round == self.watched:
            self._begun.set()
        return super().local(device, broadcast)


class TrainsLater(Trains):
    """The same for round 5."""

    watched = 5


@pytest.mark.parametrize("error", [DeathError(), FileError("no room")])
def test_run_that_dies_in_a_commit_repeats_two_rounds(results, simulation, tmp_path, monkeypatch, error):
    """The commit of round 2 fails once round 3 trains."""
    whole, strategy = results(FedAvg(), tmp_path / "whole", rounds=6), Trains()
    write, recorder = CommitFile.write, Recorder()

    def dying(file, commit):
        if file.round == 2:
            assert strategy._begun.wait(60)
            raise error
        write(file, commit)

    with monkeypatch.context() as patch:
        patch.setattr(CommitFile, "write", dying)
        with pytest.raises(type(error)):
            simulation(strategy, tmp_path / "run", rounds=6).run(observers=[recorder])
    assert recorder.rounds == [1]
    again = Recorder()
    simulation(FedAvg(), tmp_path / "run", rounds=6).run(resume=True, observers=[again])
    assert again.rounds == [2, 3, 4, 5, 6]
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


@pytest.mark.parametrize("strategy", [FedAvg(), FedPer()], ids=lambda s: s.name)
@pytest.mark.parametrize("round", [1, 3, 5])
def test_run_that_dies_while_a_round_is_trained_ahead_resumes(strategy, round, results, simulation, tmp_path):
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


def test_round_that_was_trained_ahead_of_a_stop_leaves_nothing(simulation, tmp_path):
    summary = simulation(FedAvg(), tmp_path, rounds=6).run(observers=[Recorder(stop_after=3)])
    assert summary["rounds"] == 3
    assert not (tmp_path / "checkpoint" / "server.4.safetensors").exists()


# --- rounds that are committed together --------------------------------------------------------------------------------


class Follows(Recorder):
    waits = True


@pytest.fixture
def committed(monkeypatch):
    """Return the rounds that are committed, with an error for one of them."""
    monkeypatch.setattr(start, "SHORT", math.inf)
    write, rounds, errors = CommitFile.write, [], {}

    def recorded(file, commit):
        if file.round in errors:
            raise errors.pop(file.round)
        rounds.append(file.round)
        write(file, commit)

    monkeypatch.setattr(CommitFile, "write", recorded)
    return rounds, errors


@pytest.mark.parametrize(("most", "rounds"), [(16, [1, 8, 9]), (3, [1, 4, 7, 8, 9]), (1, list(range(1, 10)))])
def test_short_rounds_are_committed_together(most, rounds, committed, results, simulation, tmp_path, monkeypatch):
    """All but the first and the last two; observers get the records of all, in order."""
    whole, recorder = results(FedAvg(), tmp_path / "whole", rounds=9, evaluate_every=9), Follows()
    committed[0].clear()
    monkeypatch.setattr(commits, "MOST", most)
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
    monkeypatch.setattr(start, "SHORT", 5.0)
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record, seconds in zip(records, [1.0] * 8 + [60.0], strict=True):
        record["seconds"] = seconds
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    again = Follows()
    simulation(FedAvg(), tmp_path, **settings).run(resume=True, observers=[again])
    assert again.rounds == list(range(2, 10))


@pytest.mark.parametrize("round", [1, 4, 7, 8, 9])
def test_run_that_dies_in_a_common_commit_repeats_its_rounds(
    round, committed, results, simulation, tmp_path, monkeypatch
):
    """Their records are already on disk and are truncated."""
    monkeypatch.setattr(commits, "MOST", 3)
    settings = {"rounds": 9, "evaluate_every": 9}
    whole, recorder, again = results(FedAvg(), tmp_path / "whole", **settings), Follows(), Follows()
    committed[1][round] = DeathError()
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path / "run", **settings).run(observers=[recorder])
    simulation(FedAvg(), tmp_path / "run", **settings).run(resume=True, observers=[again])
    assert recorder.rounds + again.rounds == list(range(1, 10))
    assert recorder.rounds == list(range(1, {1: 1, 4: 2, 7: 5, 8: 8, 9: 9}[round]))
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


def test_damaged_common_commit_gives_way_to_the_one_before(committed, results, simulation, tmp_path, monkeypatch):
    monkeypatch.setattr(commits, "MOST", 3)
    settings = {"rounds": 9, "evaluate_every": 9}
    whole = results(FedAvg(), tmp_path / "whole", **settings)
    committed[1][8] = DeathError()
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path / "run", **settings).run(observers=[Follows()])
    (tmp_path / "run" / "checkpoint" / "server.7.safetensors").write_bytes(b"damaged")
    again = Follows()
    simulation(FedAvg(), tmp_path / "run", **settings).run(resume=True, observers=[again])
    assert again.rounds == [5, 6, 7, 8, 9]
    assert "server.7.safetensors" in again.warnings[0]
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


def test_rounds_that_wait_are_committed_if_the_next_one_fails(committed, simulation, tmp_path):
    recorder = Follows()
    with pytest.raises(DeathError):
        simulation(FailsIn(6), tmp_path, rounds=9, evaluate_every=9).run(observers=[recorder])
    assert committed[0] == [1, 5]
    assert recorder.rounds == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("error", [None, FileError("no room")])
def test_short_rounds_do_not_wait_for_a_slow_commit(error, results, simulation, tmp_path, monkeypatch):
    """The commit of rounds 2 and 3 ends once round 5 trains; if it fails, no later round is on disk."""
    monkeypatch.setattr(commits, "MOST", 2)
    settings = {"rounds": 9, "evaluate_every": 9}
    whole, strategy = results(FedAvg(), tmp_path / "whole", **settings), TrainsLater()
    write, recorder, again = CommitFile.write, Follows(), Follows()

    def slow(file, commit):
        if file.round == 3:
            assert strategy._begun.wait(20)
            if error:
                raise error
        write(file, commit)

    with monkeypatch.context() as patch, pytest.raises(FileError) if error else nullcontext():
        patch.setattr(CommitFile, "write", slow)
        simulation(strategy, tmp_path / "run", **settings).run(observers=[recorder])
    if error:
        assert recorder.rounds == [1]
        simulation(FedAvg(), tmp_path / "run", **settings).run(resume=True, observers=[again])
    assert recorder.rounds + again.rounds == list(range(1, 10))
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


@pytest.mark.parametrize(("seconds", "recorded"), [(1.0, [1]), (0.01, [])])
def test_record_of_a_long_round_arrives_at_once(seconds, recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(commits, "SHORT", 0.1)
    recorder = Recorder()
    observers = Observers([recorder])
    observers.on_begin(RunInfo("run", {}, tmp_path, 3))
    with commits.Commits(observers) as ended:
        commit, record = Commit(1, ServerState({}), Versions(), {}), round_record(1, seconds=seconds)
        assert not ended.begin(commit, record, lambda records: None, waits=False)
        assert recorder.rounds == recorded
    assert recorder.rounds == [1]
