"""Callbacks of the user get each round's record, and may end the run."""

import importlib
import re
from functools import partial
from pathlib import Path

import pytest
from deaths import DeathError, DiesAfterRound, Recorder

from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.observers.base import Observer
from odt_sim.strategies.shared_parts.fedper import FedPer

SETTINGS = {"rounds": 6, "evaluate_every": 1}
STOPPED_AT_4 = {"rounds": 6, "evaluate_every": 3}


@pytest.fixture
def own(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("own_callbacks")


@pytest.fixture(scope="module")
def short(results, tmp_path_factory):
    """Return a run of 3 rounds without callbacks."""
    return results(FedPer(), tmp_path_factory.mktemp("short"), **{**SETTINGS, "rounds": 3})


def test_function_gets_each_record_and_changes_nothing(short, results, tmp_path):
    records = []
    found = results(FedPer(), tmp_path, **{**SETTINGS, "rounds": 3}, callbacks=[records.append])
    assert [(record.round, "accuracy" in record) for record in records] == [(1, True), (2, True), (3, True)]
    assert (found.rounds, found.devices) == (short.rounds, short.devices)
    assert "stopped" not in found.summary
    assert found.summary["settings"]["callbacks"] == "append"


def test_stopped_run_equals_a_shorter_one_and_records_why(own, short, results, tmp_path):
    found = results(FedPer(), tmp_path, **SETTINGS, callbacks=[partial(own.stop_after, rounds=3)])
    assert (found.rounds, found.devices) == (short.rounds, short.devices)
    assert found.summary["stopped"] == "stop_after rounds=3, round 3"
    assert found.summary["settings"]["callbacks"] == "stop_after rounds=3"


def test_stop_after_the_last_round_ends_nothing_early(own, short, results, tmp_path):
    found = results(FedPer(), tmp_path, **{**SETTINGS, "rounds": 3}, callbacks=[partial(own.stop_after, rounds=3)])
    assert found.devices == short.devices
    assert "stopped" not in found.summary


def test_text_is_the_reason(own, results, tmp_path):
    found = results(FedPer(), tmp_path, **SETTINGS, callbacks=[own.StopWhenFlat(patience=1, least=10.0)])
    assert found.summary["stopped"] == "StopWhenFlat: flat for 1 rounds, round 2"
    assert found.summary["settings"]["callbacks"] == "StopWhenFlat flat=0 least=10.0 patience=1"


def test_observer_may_be_a_callback(results, tmp_path):
    observer = Recorder(stop_after=3)
    found = results(FedPer(), tmp_path, **SETTINGS, callbacks=[observer])
    assert (observer.rounds, found.summary["stopped"]) == ([1, 2, 3], "Recorder")


@pytest.mark.parametrize("died", [1, 2, 3])
def test_interrupted_run_ends_with_the_same_bits(died, own, results, simulation, tmp_path):
    def settings():
        return {**SETTINGS, "callbacks": [own.StopWhenFlat(patience=2, least=10.0)]}

    ended = results(FedPer(), tmp_path / "ended", **settings())
    assert len(ended.rounds) == 3
    with pytest.raises(DeathError):
        simulation(FedPer(), tmp_path / "halves", **settings()).run(observers=[DiesAfterRound(died)])
    simulation(FedPer(), tmp_path / "halves", **settings()).run(resume=True)
    type(ended).read(tmp_path / "halves").assert_same_bits(ended)


def test_resumed_simulation_passes_no_record_twice(own, simulation, tmp_path):
    records = []
    made = simulation(FedPer(), tmp_path, **SETTINGS, callbacks=[records.append, partial(own.stop_after, rounds=4)])
    with pytest.raises(DeathError):
        made.run(observers=[DiesAfterRound(2)])
    assert made.run(resume=True).rounds == made.run(resume=True).rounds == 4
    assert [record.round for record in records] == [1, 2, 3, 4]


def test_stopped_run_goes_on_without_the_callback(own, results, simulation, tmp_path):
    whole = results(FedPer(), tmp_path / "whole", **SETTINGS)
    results(FedPer(), tmp_path / "stopped", **SETTINGS, callbacks=[own.stop_after])
    simulation(FedPer(), tmp_path / "stopped", **SETTINGS).run(resume=True)
    whole.read(tmp_path / "stopped").assert_same_bits(whole)


def test_round_after_which_a_run_stops_is_evaluated(own, results, tmp_path):
    short = results(FedPer(), tmp_path / "short", **{**STOPPED_AT_4, "rounds": 4})
    found = results(FedPer(), tmp_path / "found", **STOPPED_AT_4, callbacks=[partial(own.stop_after, rounds=4)])
    assert (found.rounds, found.devices) == (short.rounds, short.devices)
    assert found.summary["reported_round"] == short.summary["reported_round"]


def test_resumed_run_that_stops_again_has_the_same_bits(own, results, simulation, tmp_path):
    settings = {**STOPPED_AT_4, "callbacks": [partial(own.stop_after, rounds=4)]}
    ended = results(FedPer(), tmp_path, **settings)
    again = simulation(FedPer(), tmp_path, **settings)
    again.run(resume=True)
    ended.read(tmp_path).assert_same_bits(ended)
    assert len(list(again.deployed([0]))) == 1


def test_run_that_stopped_between_evaluations_goes_on_without_the_callback(own, results, simulation, tmp_path):
    whole = results(FedPer(), tmp_path / "whole", **STOPPED_AT_4)
    results(FedPer(), tmp_path / "stopped", **STOPPED_AT_4, callbacks=[partial(own.stop_after, rounds=4)])
    simulation(FedPer(), tmp_path / "stopped", **STOPPED_AT_4).run(resume=True)
    whole.read(tmp_path / "stopped").assert_same_bits(whole)


def test_failure_ends_the_run_which_can_be_resumed(own, simulation, tmp_path):
    recorder = Recorder()
    line = (
        r"^callback absent_column: failed after round 1 with KeyError: 'f1' \(\S+own_callbacks\.py:\d+\); correct it$"
    )
    with pytest.raises(SimulationError, match=line):
        simulation(FedPer(), tmp_path, callbacks=[own.absent_column]).run(observers=[recorder])
    assert (recorder.rounds, recorder.ends) == ([1], [None])
    with pytest.raises(SimulationError, match=line):
        simulation(FedPer(), tmp_path, callbacks=[own.absent_column]).run(resume=True)
    assert simulation(FedPer(), tmp_path).run(resume=True).rounds == 3


def test_answer_of_another_type_is_refused(simulation, tmp_path):
    line = (
        "callback <lambda>: failed after round 1 with TypeError: it returned float, expected True, False, None or text"
    )
    with pytest.raises(SimulationError, match=f"^{re.escape(line)}"):
        simulation(FedPer(), tmp_path, callbacks=[lambda record: record.train_loss]).run()


def test_observer_that_is_not_required_is_dropped(simulation, tmp_path):
    class Fails(Observer):
        def on_round(self, record):
            raise OSError("no room")

    recorder = Recorder()
    assert simulation(FedPer(), tmp_path, callbacks=[Fails()]).run(observers=[recorder]).rounds == 3
    [warning] = recorder.warnings
    assert warning.startswith("Fails.on_round: failed with OSError: no room")


def test_function_in_place_of_a_list_is_refused(simulation, tmp_path):
    with pytest.raises(ConfigurationError, match=r"^callbacks: expected a list, found len; put it "):
        simulation(FedPer(), tmp_path, callbacks=len)


@pytest.mark.parametrize("found", ["class", "number", "object"])
def test_what_is_neither_function_nor_observer_is_refused(found, own, simulation, tmp_path):
    class Thing:
        pass

    given, shown = {
        "class": (own.StopWhenFlat, "the class StopWhenFlat"),
        "number": (3, "3"),
        "object": (Thing(), "an object of Thing"),
    }[found]
    with pytest.raises(
        ConfigurationError, match=rf"^callbacks: expected functions of a round's record, .* found {shown};"
    ):
        simulation(FedPer(), tmp_path, callbacks=[given])
