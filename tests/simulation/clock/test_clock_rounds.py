"""Runs with synchronous rounds on the clock: times by hand, records, resuming and backends."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deaths import DeathError, DiesAfterRound, DiesInRound

import odt_sim.strategies
from odt_sim import Fleet, TrainingPlan
from odt_sim.data.devices.arrival import in_order
from odt_sim.errors import ConfigurationError, SimulationError, StrategyError
from odt_sim.fleet.conditions import conditions
from odt_sim.simulation.clock import asynchronous, rounds
from odt_sim.simulation.clock.devices import Devices
from odt_sim.simulation.clock.work import EmptyEngine
from odt_sim.strategies import FedAvg, FedPer, FedProx, Local
from odt_sim.testing import random_data

SPEED = {"fast": 2.0, "middle": 1.0, "slow": 0.25}


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_hand(model, data, classes, device, epochs=1):
    """Return a device's seconds in a round: bytes by network speed, and a second per step at speed 1."""
    sent = 4 * model.moving.size
    batches = -(-int(data.train_sizes[device]) // model.batch_size)
    return sent / 1000 + epochs * batches / SPEED[classes[device]] + sent / 500


def test_first_round_takes_what_was_computed_by_hand(simulation, on_clock, momentum, fleet_data, tmp_path):
    run = simulation(FedAvg(), tmp_path, fleet=on_clock(momentum), rounds=2)
    summary = run.run()
    classes = {row["device"]: row["device_class"] for row in read_lines(tmp_path / "devices.jsonl")}
    seconds = [by_hand(momentum, fleet_data, classes, device) for device in range(7)]
    first, second = read_lines(tmp_path / "rounds.jsonl")
    assert first["simulated_start"] == 0
    assert first["simulated_end"] == second["simulated_start"] == pytest.approx(max(seconds))
    assert second["simulated_end"] == summary["simulated_seconds"] == pytest.approx(2 * max(seconds))
    line = read_lines(tmp_path / "timeline.jsonl")[0]
    np.testing.assert_allclose(line["stops"], seconds, atol=1e-3)
    sent = 4 * momentum.moving.size
    compute = np.array(seconds) - 3 * sent / 1000
    np.testing.assert_allclose(line["joules"], 3 * compute + 0.5 * 3 * sent / 1000 + 300 * sent / 1e6, atol=1e-3)


def test_energy_is_the_sum_over_rounds_devices_and_timeline(simulation, on_clock, momentum, tmp_path):
    fleet = on_clock(momentum, {"overselection": 1.5, "deadline": 12}, cohort=4)
    summary = simulation(FedAvg(), tmp_path, fleet=fleet, rounds=4).run()
    rounds, devices, lines = (read_lines(tmp_path / f"{name}.jsonl") for name in ("rounds", "devices", "timeline"))
    for name in ("joules", "bytes_wifi", "bytes_cellular"):
        total = sum(row[name] for row in rounds)
        assert summary[name] == pytest.approx(total)
        assert sum(row[name] for row in devices) == pytest.approx(total, rel=1e-6)
    assert sum(row["selected"] for row in devices) == sum(row["selected"] for row in rounds) == 4 * 6
    assert [row["reported"] + row["late"] + row["left"] for row in rounds] == [row["selected"] for row in rounds]
    assert [sum(line["bytes_down"]) for line in lines] == [row["bytes_down"] for row in rounds]


FAST = ("FedAvg", "FedRep", "Moon", "PFedMe")
WITH_A_SERVER = [
    pytest.param(getattr(odt_sim.strategies, name), id=name, marks=[] if name in FAST else pytest.mark.slow)
    for name in odt_sim.strategies.__all__
    if name not in ("Local", "FedALA")  # the passes of FedALA's second round depend on its losses
]


def test_scheduled_rate_is_not_zero_while_work_is_counted(momentum):
    """Strategies such as q-FFL divide by it."""
    assert EmptyEngine(momentum).call("schedule", step=np.int32(0))["learning_rate"].item() == 1


@pytest.mark.parametrize("strategy", WITH_A_SERVER)
def test_predicted_work_is_the_real_work(simulation, on_clock, model_for, tmp_path, strategy):
    model = model_for(strategy())
    run = simulation(strategy(), tmp_path, model=model, fleet=on_clock(model), plan=TrainingPlan(2, 0.05), rounds=2)
    run.run()
    speeds = {row["device"]: SPEED[row["device_class"]] for row in read_lines(tmp_path / "devices.jsonl")}
    for line, row in zip(*(read_lines(tmp_path / f"{name}.jsonl") for name in ("timeline", "rounds")), strict=True):
        busy = np.subtract(line["stops"], line["begins"])
        transfer = np.divide(line["bytes_down"], 1000) + np.divide(line["bytes_up"], 500)
        calls = (busy - transfer) * [speeds[device] for device in line["devices"]]
        assert calls.sum() == pytest.approx(row["train_calls"] + row["infer_calls"], abs=0.05)


@pytest.mark.parametrize("schedule", [{"overselection": 1.5}, {"deadline": 8}, {"kind": "oort"}], ids=str)
def test_interrupted_run_resumes_to_the_same_bits(simulation, results, on_clock, momentum, tmp_path, schedule):
    settings = {
        "fleet": on_clock(momentum, schedule, {"kind": "daily", "peak": 0.9, "low": 0.5}, cohort=3),
        "rounds": 6,
    }
    whole = results(FedPer(), tmp_path / "whole", **settings)
    run = tmp_path / "run"
    with pytest.raises(DeathError):
        simulation(FedPer(), run, **settings).run(observers=[DiesAfterRound(2)])
    with pytest.raises(DeathError):
        simulation(FedPer(), run, backend=DiesInRound(4), **settings).run(resume=True)
    simulation(FedPer(), run, **settings).run(resume=True)
    type(whole).read(run).assert_same_bits(whole)
    assert (run / "timeline.jsonl").read_bytes() == (tmp_path / "whole" / "timeline.jsonl").read_bytes()


def test_partial_work_is_trained_and_others_lose_it(simulation, on_clock, grouped, tmp_path):
    fleet = on_clock(grouped, {"deadline": 20})
    outcomes = {}
    for strategy in (FedAvg(), FedProx()):
        folder = tmp_path / strategy.name
        plan = TrainingPlan(steps=10, learning_rate=0.05)
        simulation(strategy, folder, model=grouped, fleet=fleet, plan=plan, rounds=1).run()
        [row], [line] = read_lines(folder / "rounds.jsonl"), read_lines(folder / "timeline.jsonl")
        outcomes[strategy.name] = line["outcomes"]
        steps = 10 * line["outcomes"].count(0) + 4 * line["outcomes"].count(1)  # 19.x s at a quarter of the speed
        assert row["train_calls"] == steps
        assert row["devices"] == row["reported"]
        assert row["simulated_end"] == 20
    assert 2 in outcomes["fedavg"]
    assert [1 if code == 2 else code for code in outcomes["fedavg"]] == outcomes["fedprox"]


def test_run_ends_at_its_hours(simulation, on_clock, momentum, tmp_path):
    whole = simulation(FedAvg(), tmp_path / "whole", fleet=on_clock(momentum), rounds=4).run()
    hours = 0.8 * whole["simulated_seconds"] / 3600
    summary = simulation(FedAvg(), tmp_path / "run", fleet=on_clock(momentum, {"hours": hours}), rounds=4).run()
    assert summary["rounds"] == 3
    assert "accuracy" in read_lines(tmp_path / "run" / "rounds.jsonl")[-1]


@pytest.mark.parametrize("schedule", ["synchronous", "oort", "fedbuff"])
def test_run_ends_at_its_hours_while_the_server_waits(simulation, on_clock, momentum, tmp_path, schedule):
    trace = tmp_path / "trace.csv"  # from 100 s on too few devices for a round or for an update
    trace.write_text("\n".join(["device,from,to", *(f"{device},0,100" for device in range(7)), "0,100,7200", ""]))
    asynchronous = {"buffer": 4} if schedule == "fedbuff" else {}
    fleet = on_clock(momentum, {"kind": schedule, "hours": 1, **asynchronous}, str(trace), cohort=4)
    summary = simulation(FedAvg(), tmp_path / "run", fleet=fleet, rounds=400).run()
    assert 0 < summary["rounds"] < 400
    assert summary["simulated_seconds"] <= 3600


def test_round_with_too_few_reports_leaves_the_model(simulation, on_clock, momentum, tmp_path):
    fleet = on_clock(momentum, {"deadline": 8, "min_reports": 6}, cohort=6)
    simulation(FedAvg(), tmp_path, fleet=fleet, rounds=3, evaluate_every=1).run()
    rounds = read_lines(tmp_path / "rounds.jsonl")
    assert {row["devices"] for row in rounds} == {0}
    assert len({row["loss"] for row in rounds}) == 1
    assert all(row["reported"] and row["joules"] for row in rounds)


class Diverges(FedAvg):
    """Diverges on one device."""

    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        return replace(update, tensors={"weights": np.nan * update.tensors["weights"]}) if device.id == 2 else update


@pytest.mark.slow
def test_quarantine_below_a_buffer_is_named(simulation, on_clock, momentum, tmp_path):
    fleet = on_clock(momentum, {"kind": "fedbuff", "buffer": 7}, quarantine_after=1, cohort=7)
    expected = (
        r"^round 2: fleet.schedule.buffer expects 7 devices, but 6 of 7 are not quarantined "
        r"\(fleet\.quarantine_after\); "
    )
    with pytest.raises(SimulationError, match=expected):
        simulation(Diverges(), tmp_path, fleet=fleet, rounds=3).run()


def test_device_that_leaves_is_not_trained_and_its_cost_counts(simulation, on_clock, momentum, tmp_path):
    trace = tmp_path / "trace.csv"
    days = [f"{device},0,{3 if device == 2 else 10**6}" for device in range(7)]
    trace.write_text("\n".join(["device,from,to", *days]))
    simulation(FedAvg(), tmp_path / "run", fleet=on_clock(momentum, availability=str(trace)), rounds=2).run()
    first, second = read_lines(tmp_path / "run" / "rounds.jsonl")
    line = read_lines(tmp_path / "run" / "timeline.jsonl")[0]
    assert (first["selected"], first["left"], first["reported"], first["devices"]) == (7, 1, 6, 6)
    assert (line["outcomes"][2], line["stops"][2]) == (3, 3)
    assert line["joules"][2] > 0 == line["bytes_up"][2]
    assert (second["eligible"], second["ineligible"], second["selected"]) == (6, 1, 6)


def test_round_begins_once_a_cohort_is_available(simulation, on_clock, momentum, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["device,from,to", *(f"{device},{2000 * device},10000000" for device in range(7))]))
    fleet = on_clock(momentum, availability=str(trace), cohort=4)
    simulation(FedAvg(), tmp_path / "run", fleet=fleet, rounds=1).run()
    [row] = read_lines(tmp_path / "run" / "rounds.jsonl")
    assert row["simulated_start"] == 6000  # the fourth comes then, and the server looks every 10 minutes
    assert (row["selected"], row["eligible"]) == (4, 4)


def test_trace_may_end_within_the_last_round(simulation, on_clock, grouped, tmp_path):
    """The last round ends with devices that send partial work after they left."""
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["device,from,to", *(f"{device},0,40" for device in range(7))]))
    settings = {"fleet": on_clock(grouped, availability=str(trace)), "plan": TrainingPlan(100), "rounds": 1}
    summary = simulation(FedProx(), tmp_path / "run", model=grouped, **settings).run()
    assert summary["simulated_seconds"] > 40
    assert {row["available"] for row in read_lines(tmp_path / "run" / "devices.jsonl")} == {1.0}


def test_work_is_that_on_the_examples_that_have_arrived(simulation, on_clock, momentum, fleet_data, tmp_path):
    data = in_order(fleet_data, 0, periods=2, rounds=1)
    simulation(FedAvg(), tmp_path, data=data, fleet=on_clock(momentum), rounds=2).run()
    classes = {row["device"]: row["device_class"] for row in read_lines(tmp_path / "devices.jsonl")}
    for line in read_lines(tmp_path / "timeline.jsonl"):
        sizes = [len(data.arrived(device, line["round"])[0]) for device in line["devices"]]
        computed = [-(-size // momentum.batch_size) / SPEED[classes[device]] for device, size in enumerate(sizes)]
        busy = np.subtract(line["stops"], line["begins"])
        np.testing.assert_allclose(busy - 3 * 4 * momentum.moving.size / 1000, computed, atol=1e-3)


def test_eligible_devices_of_a_large_fleet_are_at_most_all(on_clock, momentum):
    fleet = conditions(on_clock(momentum), 5999, 0, momentum)
    devices = Devices(fleet, np.arange(5999), random_data(momentum, [1] * 5999))
    assert devices.count(0.0, replace(fleet.batteries, floor=-1.0)) == 5999  # no battery is below the floor


def test_all_available_devices_train_alone_without_deadline(simulation, on_clock, momentum, tmp_path):
    plain = simulation(Local(), tmp_path / "plain", rounds=3, fleet=Fleet(unseen=1)).run()
    schedule = {"deadline": 0.1, "min_reports": 3, "overselection": 1.5}  # a setting of a server, but there is none
    fleet = on_clock(momentum, schedule, cohort=3, unseen=1)
    timed = simulation(Local(), tmp_path / "timed", fleet=fleet, rounds=3).run()
    assert timed["metrics"] == plain["metrics"]
    assert (timed["train_calls"], timed["bytes_down"], timed["bytes_up"]) == (plain["train_calls"], 0, 0)
    assert timed["joules"] == pytest.approx(
        3 * sum(row["busy_seconds"] for row in read_lines(tmp_path / "timed/devices.jsonl"))
    )
    for line in read_lines(tmp_path / "timed/timeline.jsonl"):
        assert line["devices"] == list(range(7))
        assert line["outcomes"] == [0] * 7
        assert line["end"] == pytest.approx(max(line["stops"]))


def test_device_that_trains_alone_trains_while_it_is_available(simulation, on_clock, momentum, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "\n".join(["device,from,to", *(f"{device},600,90000" for device in (1, 4)), "2,1,2", "5,0,99999", ""])
    )
    simulation(Local(), tmp_path / "run", fleet=on_clock(momentum, {"check_in": 600}, str(trace)), rounds=3).run()
    first, *others = read_lines(tmp_path / "run/timeline.jsonl")
    assert first["devices"] == [5]
    assert {*map(tuple, (line["devices"] for line in others))} <= {(5,), (1, 4, 5)}
    selected = {row["device"]: row["selected"] for row in read_lines(tmp_path / "run/devices.jsonl")}
    assert (selected[2], selected[5]) == (0, 3)


@pytest.mark.parametrize("schedule", [{"kind": "synchronous"}, {"kind": "fedbuff", "buffer": 6}])
def test_more_devices_than_have_the_memory_are_refused(simulation, on_clock, momentum, tmp_path, schedule):
    fleet = on_clock(momentum, schedule, cohort=6)
    table = tmp_path / "small.csv"
    table.write_text(Path(fleet.profiles.table).read_text().replace("slow,1,0.25,100,", "slow,1,0.25,5,"))
    fleet = replace(fleet, profiles=replace(fleet.profiles, table=str(table)))
    name = "fleet.schedule.buffer" if schedule["kind"] == "fedbuff" else "fleet.cohort"
    with pytest.raises(
        ConfigurationError,
        match=rf"{name}: expected at most \d, since \d of 7 devices have too little memory .* found 6",
    ):
        simulation(FedAvg(), tmp_path / "run", fleet=fleet).run()


@pytest.mark.parametrize(
    ("schedule", "advice"),
    [
        ({"kind": "synchronous"}, "use a smaller fleet.cohort, found 5, more devices, or"),
        ({"kind": "fedbuff", "buffer": 4}, "use a smaller fleet.schedule.buffer, found 4, more devices, or"),
        ({"kind": "fedasync"}, "from hour 0.0 on; use more devices, or"),
    ],
)
def test_too_few_devices_for_long_name_the_setting(
    simulation, on_clock, momentum, tmp_path, monkeypatch, schedule, advice
):
    for module in (rounds, asynchronous):
        monkeypatch.setattr(module, "LONGEST_WAIT", 3600)  # simulating a month takes a minute
    last = 0 if schedule["kind"] == "fedasync" else 3
    lines = ["device,from,to", *(f"{device},0,1e9" for device in range(last)), "6,1,2", "6,9e6,1e9", ""]
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    fleet = on_clock(momentum, schedule, str(tmp_path / "trace.csv"), cohort=5)
    with pytest.raises(SimulationError, match=advice):
        simulation(FedAvg(), tmp_path / "run", fleet=fleet).run()


@pytest.fixture
def diverging(fleet_data):
    """Return data on which the updates of some devices are not finite."""

    def of(devices):
        x = fleet_data.x.copy()
        x[np.concatenate([fleet_data.train(device) for device in devices])] = np.nan
        return replace(fleet_data, x=x)

    return of


@pytest.mark.parametrize("kind", ["synchronous", "oort"])
def test_rounds_go_on_with_fewer_devices_than_a_cohort_after_quarantine(
    simulation, on_clock, momentum, diverging, tmp_path, kind
):
    fleet = on_clock(momentum, kind, cohort=6, quarantine_after=1)
    simulation(FedAvg(), tmp_path, data=diverging([2, 4]), fleet=fleet, rounds=4).run(observers=[])
    assert read_lines(tmp_path / "rounds.jsonl")[-1]["devices"] == 5


def test_quarantine_of_all_devices_is_named(simulation, on_clock, momentum, diverging, tmp_path):
    fleet = on_clock(momentum, cohort=7, quarantine_after=1, min_devices=0)
    run = simulation(FedAvg(), tmp_path, data=diverging(range(7)), fleet=fleet, rounds=2)
    with pytest.raises(SimulationError, match=r"expects 7 devices, but 0 of 7 are not quarantined"):
        run.run(observers=[])


REFUSED = [
    (FedAvg(), {"deadline": 0.5}, {}, SimulationError, r"no device can report within fleet.schedule.deadline, 0.5 s"),
    (FedAvg(), {"hours": 1e-6}, {}, ConfigurationError, r"fleet.schedule.hours: expected at least"),
    (FedAvg(), {"min_reports": 9}, {}, ConfigurationError, r"min_reports: expected at most fleet.cohort, 7, found 9"),
    (
        FedAvg(),
        {"kind": "fedbuff", "buffer": 8},
        {},
        ConfigurationError,
        r"buffer: expected at most the number of seen",
    ),
    (Local(), "fedbuff", {}, StrategyError, r"strategy local: has no server to update asynchronously"),
    (FedAvg(), "synchronous", {"stragglers": 0.5}, ConfigurationError, r"fleet.stragglers: expected 0"),
    (FedAvg(), "oort", {"profiles": None}, ConfigurationError, r"fleet.schedule: needs the times of fleet.profiles"),
]


@pytest.mark.parametrize(("strategy", "schedule", "settings", "error", "message"), REFUSED)
def test_unusable_settings(simulation, on_clock, momentum, tmp_path, strategy, schedule, settings, error, message):
    given = on_clock(momentum, schedule, settings.get("availability", "always"))
    fleet = type(given)(**{**vars(given), **settings, **({"availability": None} if "profiles" in settings else {})})
    with pytest.raises(error, match=message):
        simulation(strategy, tmp_path, fleet=fleet, plan=TrainingPlan(2, 0.05)).run()
