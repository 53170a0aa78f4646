"""FedBuff and FedAsync, compared with event loops in plain numpy from the papers; resuming, backends and refusals."""

import heapq
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from deaths import DeathError, DiesAfterRound, DiesInRound
from safetensors.numpy import load_file

from odt_sim import Device, TrainingPlan
from odt_sim.aggregators.median import Median
from odt_sim.device.examples import Examples
from odt_sim.errors import ConfigurationError, StrategyError
from odt_sim.model.weights import Weights
from odt_sim.observers.base import Observer
from odt_sim.simulation.run import commits
from odt_sim.strategies import IFCA, FedAvg, FedAvgM, FedDyn, FedPer, Scaffold

PLAN = TrainingPlan(epochs=1, learning_rate=0.05)  # as in the fixture `simulation`
SPEEDS = {f"class {number}": 0.1 * 1.07**number for number in range(60)}


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Paper:
    """Devices that train one by one, and a float64 server that updates its model when their reports arrive."""

    def __init__(self, model, data, seconds, buffer):
        self.model, self.data, self.seconds, self.buffer = model, data, seconds, buffer
        self.versions = [Device(model, self.examples(0)).parameters().vector.astype(np.float64)]
        self.times = [0.0]

    def examples(self, device):
        return Examples(self.data.x, self.data.y, self.data.train(device))

    def model_of(self, device, version):
        """Return `[parameters]`: a version of the model after a device's training."""
        trained = Device(self.model, self.examples(device), id=device, round=version + 1, plan=PLAN)
        trained.restore(Weights(self.model.layout, self.versions[version].astype(np.float32)))
        trained.train()
        return trained.parameters().vector.astype(np.float64)

    def run(self, updates, step):
        """Run the server; `step` returns its new model, given the reports `(device, version, model)`."""
        events = [(seconds, device, 0) for device, seconds in enumerate(self.seconds)]
        heapq.heapify(events)
        reports, idle = [], []
        while len(self.versions) <= updates:
            now, device, version = heapq.heappop(events)
            reports.append((device, version, self.model_of(device, version)))
            idle.append((device, version))
            if len(reports) == self.buffer:
                self.versions.append(step(self.versions, reports))
                self.times.append(now)
                reports = []
            newest = len(self.versions) - 1
            for ready, _ in [each for each in idle if each[1] < newest]:  # repeated work would have the same bits
                heapq.heappush(events, (now + self.seconds[ready], ready, newest))
            idle = [each for each in idle if each[1] == newest]
        return self


def fedbuff(sizes):
    """Nguyen et al. 2022, algorithm 1, with weights by examples and `s(t) = 1 / sqrt(1 + t)`."""

    def step(versions, reports):
        total = np.zeros_like(versions[-1])
        for device, version, model in reports:
            staleness = len(versions) - 1 - version
            total += sizes[device] * (model - versions[version]) / np.sqrt(1 + staleness)
        return versions[-1] + total / sum(sizes[device] for device, _, _ in reports)

    return step


def fedasync(staleness_function, mixing):
    """Xie et al. 2019, algorithm 1."""

    def step(versions, reports):
        [(_, version, model)] = reports
        alpha = mixing * staleness_function(len(versions) - 1 - version)
        return (1 - alpha) * versions[-1] + alpha * model

    return step


def hinge(staleness):
    return 1.0 if staleness <= 1 else 1 / (2 * (staleness - 1) + 1)


SERVERS = [
    ({"kind": "fedbuff", "buffer": 3}, lambda sizes: fedbuff(sizes), 3),
    ({"kind": "fedasync", "mixing": 0.8}, lambda sizes: fedasync(lambda s: (1 + s) ** -0.5, 0.8), 1),
    (
        {"kind": "fedasync", "staleness": "hinge", "hinge_after": 1, "hinge_slope": 2.0},
        lambda sizes: fedasync(hinge, 0.6),
        1,
    ),
    ({"kind": "fedasync", "staleness": "constant"}, lambda sizes: fedasync(lambda s: 1.0, 0.6), 1),
]


@pytest.mark.parametrize(("schedule", "step", "buffer"), SERVERS, ids=("fedbuff", "mixing", "hinge", "constant"))
def test_server_follows_the_paper(simulation, on_clock, rows_of_32, fleet_data, tmp_path, schedule, step, buffer):
    fleet = on_clock(rows_of_32, schedule, speeds=SPEEDS)
    simulation(FedAvg(), tmp_path, model=rows_of_32, fleet=fleet, rounds=12).run()
    classes = [row["device_class"] for row in read_lines(tmp_path / "devices.jsonl")]
    assert len(set(classes)) == len(classes)  # no two reports arrive at once
    sizes, sent = fleet_data.train_sizes.tolist(), 4 * rows_of_32.moving.size
    batches = [-(-size // rows_of_32.batch_size) for size in sizes]
    seconds = [3 * sent / 1000 + count / SPEEDS[name] for count, name in zip(batches, classes, strict=True)]
    paper = Paper(rows_of_32, fleet_data, seconds, buffer).run(12, step(sizes))
    rounds = read_lines(tmp_path / "rounds.jsonl")
    np.testing.assert_allclose([row["simulated_end"] for row in rounds], paper.times[1:])
    tensors = load_file(tmp_path / "checkpoint" / "server.12.safetensors")
    np.testing.assert_allclose(tensors["broadcast.weights"], paper.versions[-1], rtol=1e-5, atol=1e-6)
    assert max(row["staleness"] for row in rounds) > 1


SCHEDULES = [
    {"kind": "fedbuff", "buffer": 2, "concurrency": 4},
    {"kind": "fedasync", "concurrency": 3, "max_staleness": 3},
]
AWAY = {"kind": "daily", "peak": 0.9, "low": 0.5}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("strategy", [FedPer(), pytest.param(FedAvgM(), marks=pytest.mark.slow)], ids=lambda s: s.name)
def test_interrupted_run_resumes_to_the_same_bits(
    simulation, results, on_clock, momentum, tmp_path, schedule, strategy
):
    settings = {"fleet": on_clock(momentum, schedule, AWAY), "rounds": 14}
    whole = results(strategy, tmp_path / "whole", **settings)
    run = tmp_path / "run"
    with pytest.raises(DeathError):
        simulation(strategy, run, **settings).run(observers=[DiesAfterRound(5)])
    with pytest.raises(DeathError):
        simulation(strategy, run, backend=DiesInRound(9), **settings).run(resume=True)
    simulation(strategy, run, **settings).run(resume=True)
    type(whole).read(run).assert_same_bits(whole)
    assert (run / "timeline.jsonl").read_bytes() == (tmp_path / "whole" / "timeline.jsonl").read_bytes()


def test_run_resumes_from_the_commit_before_a_damaged_one(simulation, results, on_clock, momentum, tmp_path):
    settings = {"fleet": on_clock(momentum, SCHEDULES[0]), "rounds": 8}
    whole = results(FedAvg(), tmp_path / "whole", **settings)
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path / "run", **settings).run(observers=[DiesAfterRound(5)])
    (tmp_path / "run" / "checkpoint" / "server.5.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="resumes after round 4"):
        simulation(FedAvg(), tmp_path / "run", **settings).run(resume=True)
    type(whole).read(tmp_path / "run").assert_same_bits(whole)


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("schedule", ["synchronous", *SCHEDULES], ids=str)
def test_tiny_rounds_are_committed_one_by_one(simulation, on_clock, momentum, tmp_path, monkeypatch, schedule):
    """Each has a line in the timeline, and devices may train from the state after any of them."""

    class Follows(Observer):
        waits = True

        def on_round(self, record):
            assert (tmp_path / "checkpoint" / f"server.{record.round}.safetensors").exists()

    monkeypatch.setattr(commits, "TOGETHER", math.inf)
    run = simulation(
        FedAvg(), tmp_path, fleet=on_clock(momentum, schedule), rounds=8, evaluate_every=8, callbacks=[Follows()]
    )
    rounds = run.run()["rounds"]
    assert len((tmp_path / "timeline.jsonl").read_text().splitlines()) == rounds > 4


def test_energy_is_the_sum_over_rounds_and_devices(simulation, on_clock, momentum, tmp_path):
    summary = simulation(FedAvg(), tmp_path, fleet=on_clock(momentum, SCHEDULES[1], AWAY), rounds=10).run()
    rounds, devices, lines = (read_lines(tmp_path / f"{name}.jsonl") for name in ("rounds", "devices", "timeline"))
    assert summary["joules"] == pytest.approx(sum(row["joules"] for row in rounds))
    assert sum(row["joules"] for row in devices) == pytest.approx(summary["joules"], rel=1e-6)
    assert sum(row["selected"] for row in devices) == sum(len(line["devices"]) for line in lines)
    assert all(row["reported"] == 1 == row["devices"] for row in rounds)


def test_server_goes_on_without_a_diverged_device(simulation, on_clock, momentum, fleet_data, tmp_path):
    x = fleet_data.x.copy()
    x[fleet_data.train(2)] = np.nan
    fleet = on_clock(momentum, {"kind": "fedasync", "concurrency": 7}, quarantine_after=2)
    simulation(FedAvg(), tmp_path, data=replace(fleet_data, x=x), fleet=fleet, rounds=60).run(observers=[])
    rounds = read_lines(tmp_path / "rounds.jsonl")
    assert [row["excluded_devices"] for row in rounds if row["excluded"]] == [[2], [2]]
    assert [row["newly_quarantined"] for row in rounds if row["newly_quarantined"]] == [[2]]


REFUSED = [
    (strategy, {}, StrategyError, rf"strategy {strategy.name}: cannot be asynchronous")
    for strategy in (Scaffold(), FedDyn(), IFCA())
] + [(FedAvg(), {"aggregator": Median()}, ConfigurationError, r"aggregator median: combines the updates of a round")]


@pytest.mark.parametrize(("strategy", "settings", "error", "message"), REFUSED)
def test_what_needs_rounds_is_refused(simulation, on_clock, grouped, tmp_path, strategy, settings, error, message):
    fleet = replace(on_clock(grouped, "fedbuff"))
    with pytest.raises(error, match=message):
        simulation(strategy, tmp_path, model=grouped, fleet=fleet, **settings)
