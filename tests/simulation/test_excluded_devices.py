"""Devices that diverge, hang or crash are excluded, and no other bits change."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from threading import Thread

import numpy as np
import pytest
import ray
from deaths import DeathError, DiesAfterRound
from safetensors.numpy import load_file

from odt_sim import Fleet
from odt_sim.errors import ConfigurationError, SimulationError
from odt_sim.observers.base import Observer
from odt_sim.simulation.executors.processes import ProcessesBackend
from odt_sim.simulation.executors.ray import RayBackend, calls
from odt_sim.simulation.executors.ray.actors import TRIES, Actors
from odt_sim.strategies import FedAdam, FedAvg, Scaffold
from odt_sim.strategies.base import Update
from odt_sim.testing import random_data

BACKENDS = {"serial": lambda: None, "ray": lambda: RayBackend(actors=2), "processes": lambda: ProcessesBackend(2)}

FAILING = 2
UNKNOWN = ("train_calls", "infer_calls", "bytes_up")  # a device that hangs or crashes counts none

pytestmark = pytest.mark.usefixtures("ray_session")


def of_others(found):
    """Return results without the reasons of excluded devices and without their calls."""

    def cut(row):
        return {name: value for name, value in row.items() if name not in ("excluded_reasons", *UNKNOWN)}

    return replace(found, rounds=[cut(row) for row in found.rounds], summary=cut(found.summary))


def rows(found):
    return {row["device"]: row for row in map(json.loads, found.devices.splitlines())}


@pytest.fixture
def away(user, results, tmp_path):
    """The results of a run in which the failing device sends an update of weight 0 in the second round."""
    return of_others(results(user.Fails("weighs_nothing"), tmp_path / "away"))


@pytest.fixture
def two_tries(monkeypatch):
    """Return a function that, for reasons of deaths, excludes a device after two, since each costs an actor's start."""

    def change(reason):
        if "2 times" in reason:
            monkeypatch.setattr(calls, "TRIES", 2)

    return change


# --- devices that are left out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "backend", "timeout", "reason"),
    [
        ("sends_nan", "serial", None, "update not finite"),
        ("explodes", "serial", None, "update too large"),
        ("hangs", "serial", 1, "timed out"),
        ("hangs", "ray", 1, "timed out"),
        pytest.param("hangs_in_native_code", "ray", 1, "worker died or hung 2 times", marks=pytest.mark.slow),
        pytest.param("aborts", "ray", None, "worker died 2 times", marks=pytest.mark.slow),
    ],
)
def test_failing_device_is_excluded_and_no_other_bit_changes(
    does, backend, timeout, reason, away, user, results, tmp_path, two_tries
):
    two_tries(reason)
    fleet = Fleet(unseen=1, timeout=timeout)
    found = results(user.Fails(does), tmp_path / "found", fleet=fleet, backend=BACKENDS[backend]())
    assert [row["excluded_reasons"] for row in found.rounds] == [{}, {str(FAILING): reason}, {}]
    assert [row["excluded_devices"] for row in found.rounds] == [[], [FAILING], []]
    assert (found.summary["excluded"], found.summary["excluded_reasons"]) == (1, [[reason, 1]])
    of_one = found.rounds[0]["bytes_up"] // 6
    sent = {"update not finite": 8, "update too large": of_one + 8}  # one float64, alone or in addition to the weights
    assert found.rounds[1]["bytes_up"] == 5 * of_one + sent.get(reason, 0)
    of_others(found).assert_same_bits(away)


def test_device_with_examples_that_litert_refuses_is_excluded(dropout, results, tmp_path):
    """One device trains on a word outside the vocabulary."""
    fine = random_data(dropout, [8, 5, 4, 6])
    x = fine.x.copy()
    x[fine.train(FAILING)[0]] = 1000
    model = replace(dropout, vocabularies={})  # as in a model with its own word lookup
    settings = {"model": model, "plan": None, "fleet": Fleet(adaptation_steps=0, quarantine_after=None)}
    found = results(FedAvg(), tmp_path / "found", data=replace(fine, x=x), **settings)
    alone = results(WithoutFailing(), tmp_path / "alone", data=fine, **settings)
    for row in found.rounds:
        assert row["excluded_devices"] == [FAILING]
        assert row["excluded_reasons"][str(FAILING)].startswith("failed in LiteRT: ")
        assert "/" not in row["excluded_reasons"][str(FAILING)]
    assert found.tensors["broadcast.weights"].tobytes() == alone.tensors["broadcast.weights"].tobytes()
    assert {device for device, row in rows(found).items() if "not_evaluated" in row} == {FAILING}
    assert {**rows(found), FAILING: None} == {**rows(alone), FAILING: None}


class WithoutFailing(FedAvg):
    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        return Update(update.tensors, update.weight if device.id != FAILING else 0, update.losses)


def test_exclusions_warn_once_where_no_display_shows_them(user, simulation, tmp_path):
    with pytest.warns(UserWarning, match="excluded from round") as caught:
        simulation(user.Fails("sends_nan", range(1, 4), (2, 3)), tmp_path).run()
    assert [str(warning.message) for warning in caught] == [
        "excluded from round 2: update not finite on device 1, 2, 3; see rounds.jsonl"
    ]


def test_largest_update_is_a_setting(user, results, tmp_path):
    found = results(user.Fails("explodes", range(7)), tmp_path, fleet=Fleet(largest_update=6e6))
    assert [row["excluded"] for row in found.rounds] == [0, 0, 0]


def test_timeout_outside_the_main_thread_is_refused(simulation, tmp_path):
    raised = []

    def run():
        try:
            simulation(FedAvg(), tmp_path, fleet=Fleet(timeout=2.5)).run()
        except ConfigurationError as error:
            raised.append(str(error))

    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert raised[0].startswith("fleet.timeout: expected null outside of the main thread, found 2.5;")


@pytest.mark.parametrize("kind", [FedAdam, Scaffold], ids=lambda kind: kind.__name__)
def test_round_without_updates_keeps_the_server_state(kind, model_for, simulation, tmp_path):
    """The previous round has filled momenta and control variates."""

    class FailsInTheSecondRound(kind):
        def local(self, device, broadcast):
            update = super().local(device, broadcast)
            return update if device.round == 1 else Update(update.tensors, 0, update.losses)

    class Keeper(Observer):
        def on_round(self, record):
            tensors = load_file(tmp_path / "checkpoint" / f"server.{record['round']}.safetensors")
            state = {name: tensor for name, tensor in tensors.items() if name.startswith(("broadcast.", "private."))}
            held.append({name: (tensor.dtype, tensor.tobytes()) for name, tensor in state.items()})

    held = []
    settings = {"model": model_for(kind()), "rounds": 2, "fleet": Fleet(min_devices=0), "evaluate_every": 2}
    simulation(FailsInTheSecondRound(), tmp_path, **settings).run(observers=[Keeper()])
    assert len(held) == 2
    assert held[0] == held[1]


# --- devices that cannot be evaluated ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "backend", "timeout", "reason"),
    [
        ("diverges", "serial", None, "deployed weights not finite"),
        ("hangs", "serial", 1, "timed out"),
        pytest.param("aborts", "ray", None, "worker died 2 times", marks=pytest.mark.slow),
    ],
)
def test_device_that_cannot_be_evaluated_has_a_reason(
    does, backend, timeout, reason, user, results, tmp_path, two_tries
):
    two_tries(reason)
    fleet, plain = Fleet(timeout=timeout, adaptation_steps=0), Fleet(adaptation_steps=0)
    sick = user.Fails(does, rounds=(1,), deploys=True)
    found = results(sick, tmp_path / "found", rounds=1, fleet=fleet, backend=BACKENDS[backend]())
    expected = results(user.Fails(does, rounds=()), tmp_path / "expected", rounds=1, fleet=plain)
    assert found.rounds[0]["not_evaluated"] == {str(FAILING): reason}
    row, others = rows(found).pop(FAILING), rows(expected)
    assert (row["not_evaluated"], row["accuracy"], row["examples"]) == (reason, None, others[FAILING]["examples"])
    assert found.summary["metrics"]["accuracy"]["devices"] == 6
    assert {**rows(found), FAILING: None} == {**others, FAILING: None}
    for name, tensor in found.tensors.items():
        assert tensor.tobytes() == expected.tensors[name].tobytes()


# --- quarantine --------------------------------------------------------------------------------------------------------


def test_repeatedly_failing_device_is_quarantined(user, results, simulation, tmp_path):
    sick = user.Fails("explodes", rounds=range(2, 7))
    settings = {"rounds": 6, "evaluate_every": 3}
    never = results(sick, tmp_path / "never", fleet=Fleet(unseen=1, quarantine_after=None), **settings)
    found = results(sick, tmp_path / "found", fleet=Fleet(unseen=1, quarantine_after=2), **settings)
    assert [row["excluded"] for row in never.rounds] == [0, 1, 1, 1, 1, 1]
    assert [row["excluded"] for row in found.rounds] == [0, 1, 1, 0, 0, 0]
    assert [row["quarantined"] for row in found.rounds] == [0, 0, 0, 1, 1, 1]
    assert [row["newly_quarantined"] for row in found.rounds] == [[], [], [FAILING], [], [], []]
    assert found.summary["quarantined"] == [FAILING]
    assert found.devices == never.devices
    assert found.states == never.states
    assert found.tensors["broadcast.weights"].tobytes() == never.tensors["broadcast.weights"].tobytes()

    again = tmp_path / "again"
    with pytest.raises(DeathError):
        simulation(sick, again, fleet=Fleet(unseen=1, quarantine_after=2), **settings).run(
            observers=[DiesAfterRound(3)]
        )
    longer = Fleet(unseen=1, quarantine_after=2, timeout=60)  # may be added on resume, as after a hang
    simulation(sick, again, fleet=longer, **settings).run(resume=True)
    type(found).read(again).assert_same_bits(found)


def test_device_that_recovers_is_not_quarantined(user, results, tmp_path):
    found = results(user.Fails("explodes", rounds=(1, 3, 4)), tmp_path, rounds=5, fleet=Fleet(quarantine_after=3))
    assert [row["excluded"] for row in found.rounds] == [1, 0, 1, 1, 0]
    assert found.summary["quarantined"] == []


def test_run_ends_if_all_devices_are_quarantined(user, results, simulation, tmp_path):
    sick, rounds = user.Fails("explodes", range(7), range(1, 9)), {"evaluate_every": 9}
    fleet = Fleet(min_devices=0, quarantine_after=1)
    found = results(sick, tmp_path, rounds=2, fleet=fleet, **rounds)
    assert [(row["excluded"], row["quarantined"], row["bytes_down"] > 0) for row in found.rounds] == [
        (7, 0, True),
        (0, 7, False),
    ]
    with pytest.raises(
        SimulationError,
        match=r"round 3: 0 devices .* is 1; 7 are quarantined \(fleet\.quarantine_after\); ask for fewer",
    ):
        simulation(sick, tmp_path, rounds=3, fleet=replace(fleet, min_devices=1), **rounds).run(resume=True)


# --- deaths of actors ------------------------------------------------------------------------------------------------


@pytest.fixture
def actors():
    """Start one actor that runs functions."""

    class Host:  # pickled by value
        def setup(self) -> None:
            pass

        def work(self, does: Callable[[], None]) -> None:
            does()

    actors = Actors(lambda: ray.remote(Host).options(num_cpus=0).remote(), ())
    actors.start([], 1, at_once=1)
    yield actors
    for actor in actors.close():
        ray.kill(actor)


@pytest.mark.slow
def test_death_counts_against_the_running_call(actors):
    """The death does not count against the call that reports it first."""

    def dies() -> None:
        time.sleep(0.5)
        os._exit(1)

    first, taken, deadly, last = (actors.call(0, does, [i]) for i, does in enumerate([int, int, dies, int]))
    actors.wait([taken.reference])
    actors.done(taken)
    actors.wait([last.reference])
    actors.replace(last)
    actors.replace(deadly)  # reports the same death
    assert [call.deadly for call in (first, taken, deadly, last)] == [False, False, True, False]
    assert actors.wait(()) is None
    again = actors.call(0, int, [3])
    ray.get(again.reference)


@pytest.mark.slow
def test_lost_actor_is_killed_and_no_call_is_counted(actors):
    """As after a network failure: the actor would occupy its slot forever."""
    at, lost = actors.call(0, lambda: time.sleep(1000), [0]), actors.call(0, int, [1])
    actors.replace(lost, died=False)
    assert [at.deadly, lost.deadly] == [False, False]
    assert actors.wait(()) is None
    assert actors.wait([at.reference]) == at.reference
    ray.get(actors.call(0, int, [2]).reference)


@pytest.mark.slow
def test_deaths_while_starting_are_counted_from_the_last_start(tmp_path):
    class Host:
        def __init__(self, number: int) -> None:
            self._does = tmp_path / str(number)

        def setup(self) -> None:
            while not self._does.exists():
                time.sleep(0.02)
            if self._does.read_text() == "dies":
                os._exit(1)

        def work(self, _: None) -> None:
            pass

    def does(number: int, what: str) -> None:
        (tmp_path / "next").write_text(what)
        (tmp_path / "next").rename(tmp_path / str(number))

    made = count()
    actors = Actors(lambda: ray.remote(Host).options(num_cpus=0).remote(next(made)), ())
    does(0, "starts")
    does(1, "starts")
    actors.start([], 2, at_once=2)
    calls = [actors.call(slot, None, [slot]) for slot in (0, 1)]
    actors.replace(calls[0])
    for number in range(2, 1 + TRIES):  # one more would end the run
        does(number, "dies")
        actors.wait(())
    actors.replace(calls[1])
    does(2 + TRIES, "starts")
    actors.wait(())
    does(1 + TRIES, "dies")
    actors.wait(())
    does(3 + TRIES, "starts")
    actors.wait(())
    for actor in actors.close():
        ray.kill(actor)
    assert next(made) == 4 + TRIES


@pytest.mark.slow
def test_job_begins_with_the_actors_that_start(tmp_path, monkeypatch):
    """As when a node dies between counting the slots and starting the actors."""
    monkeypatch.setattr("odt_sim.simulation.executors.ray.actors.SOON", 0.5)

    class Host:
        def __init__(self, number: int) -> None:
            self._number = number

        def setup(self) -> None:
            while self._number and not (tmp_path / "room").exists():
                time.sleep(0.02)

    made = count()
    actors = Actors(lambda: ray.remote(Host).options(num_cpus=0).remote(next(made)), ())
    actors.start([], 3, at_once=2)
    assert [slot for slot, actor in enumerate(actors.slots) if actor is not None] == [0]
    (tmp_path / "room").touch()
    assert [actors.wait(()), actors.wait(())] == [None, None]
    assert None not in actors.slots
    for actor in actors.close():
        ray.kill(actor)


@pytest.mark.parametrize("scale", [1e18, 1e30, 1e37])
def test_device_with_huge_inputs_is_excluded_and_no_mistake_of_the_strategy(scale, fleet_data, simulation, tmp_path):
    """Its change is so much larger than its weights that both are equal, up to rounding."""
    x = fleet_data.x.copy()
    x[fleet_data.train(FAILING)] *= np.float32(scale)
    run = simulation(FedAvg(), tmp_path, data=replace(fleet_data, x=x, digest=None), fleet=Fleet(), rounds=1)
    with pytest.warns(UserWarning, match="magnitude|excluded"):
        run.run()
    [row] = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert row["excluded_devices"] == [FAILING]
