"""Observers follow a run and may stop it."""

import pytest
from deaths import DeathError, DiesAfterRound, Recorder

from odt_sim.observers.base import Observer
from odt_sim.strategies.shared_parts.fedper import FedPer


def test_observers_get_the_run_its_rounds_and_its_summary(simulation, tmp_path):
    recorder = Recorder()
    summary = simulation(FedPer(), tmp_path).run(observers=[recorder])
    [run] = recorder.runs
    assert (run.name, run.folder, run.rounds, run.recorded) == ("fedper", tmp_path, 3, [])
    assert run.settings["fleet.unseen"] == "1"
    assert (recorder.rounds, recorder.ends) == ([1, 2, 3], [summary])


def test_method_that_nothing_calls_is_warned_of():
    with pytest.warns(UserWarning, match=r"^Ends\.on_epoch_end: nothing calls it; an Observer has on_begin, on_round,"):

        class Ends(Observer):
            def on_epoch_end(self, record):
                raise AssertionError

            def on_round(self, record):
                raise AssertionError


def test_failed_run_ends_observers_without_a_summary(simulation, tmp_path):
    recorder = Recorder()
    with pytest.raises(DeathError):
        simulation(FedPer(), tmp_path).run(observers=[recorder, DiesAfterRound(2)])
    assert (recorder.rounds, recorder.ends) == ([1, 2], [None])


def test_stopped_run_equals_a_shorter_one(simulation, results, tmp_path):
    settings = {"rounds": 6, "evaluate_every": 1}
    recorder = Recorder(stop_after=2)
    simulation(FedPer(), tmp_path / "stopped", **settings).run(observers=[recorder])
    short = results(FedPer(), tmp_path / "short", **{**settings, "rounds": 2})
    assert recorder.rounds == [1, 2]
    assert (tmp_path / "stopped" / "devices.jsonl").read_bytes() == short.devices

    again = Recorder(stop_after=2)
    simulation(FedPer(), tmp_path / "stopped", **settings).run(resume=True, observers=[again])
    assert (again.rounds, [row["round"] for row in again.runs[0].recorded]) == ([], [1, 2])
    assert (tmp_path / "stopped" / "devices.jsonl").read_bytes() == short.devices

    simulation(FedPer(), tmp_path / "stopped", **settings).run(resume=True)
    whole = results(FedPer(), tmp_path / "whole", **settings)
    whole.read(tmp_path / "stopped").assert_same_bits(whole)
