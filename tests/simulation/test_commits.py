"""The commit of a short round overlaps with the next round, and a run that dies in it repeats both."""

import math
from threading import Event

import pytest
from deaths import DeathError, DiesAfterRound, Recorder

from odt_sim.errors import FileError
from odt_sim.observers.base import Observer
from odt_sim.persistence.commit import CommitFile
from odt_sim.simulation import commits
from odt_sim.strategies.fedavg import FedAvg
from odt_sim.strategies.fedper import FedPer


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    """All rounds count as short, however slow the machine is."""
    monkeypatch.setattr(commits, "SHORT", math.inf)


class Trains(FedAvg):
    """FedAvg that says when the devices of round 3 train."""

    name = "fedavg"

    def __init__(self):
        super().__init__()
        self._begun = Event()

    def local(self, device, broadcast):
        if device.round == 3:
            self._begun.set()
        return super().local(device, broadcast)


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


def test_committed_round_is_recorded_even_if_the_next_one_fails(simulation, tmp_path):
    class Fails(FedAvg):
        def local(self, device, broadcast):
            if device.round == 3:
                raise DeathError
            return super().local(device, broadcast)

    recorder = Recorder()
    with pytest.raises(DeathError):
        simulation(Fails(), tmp_path, rounds=4).run(observers=[recorder])
    assert recorder.rounds == [1, 2]


def test_round_that_was_trained_ahead_of_a_stop_leaves_nothing(simulation, tmp_path):
    summary = simulation(FedAvg(), tmp_path, rounds=6).run(observers=[Recorder(stop_after=3)])
    assert summary["rounds"] == 3
    assert not (tmp_path / "checkpoint" / "server.4.safetensors").exists()
