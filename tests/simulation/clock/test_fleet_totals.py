"""The costs of a run on the clock: records, comparison and plots agree with the timeline."""

import numpy as np
import pytest

from odt_sim.metrics.fleet import gini
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.columns import COSTS, PHONES
from odt_sim.report.comparison import compare
from odt_sim.report.day_plot import day_of
from odt_sim.report.lines_plot import CLOCK
from odt_sim.report.pictures import pictures
from odt_sim.report.sections import classes_table, figures_table
from odt_sim.strategies import FedAvg, FedAvgFineTune

SPEEDS = {"fast": 2.0, "slow": 0.25}


@pytest.fixture(scope="module")
def run(simulation, momentum, on_clock, tmp_path_factory):
    """Return the folder of a run of six rounds on the clock, with markov availability."""
    folder = tmp_path_factory.mktemp("on_clock")
    fleet = on_clock(momentum, availability={"kind": "markov"}, speeds=SPEEDS, cohort=3, unseen=1)
    simulation(FedAvg(), folder / "run", fleet=fleet, rounds=6, evaluate_every=1).run()
    return folder / "run"


def test_totals_are_those_of_the_timeline(run):
    folder = RunFolder(run)
    summary, timeline = folder.summary(), folder.timeline()
    totals = summary.fleet_totals
    assert sum(each["devices"] for each in totals["classes"].values()) == summary.devices - summary.unseen
    assert sum(each["selected"] for each in totals["classes"].values()) == sum(len(line.devices) for line in timeline)
    joules = sum(each["joules"] for each in totals["classes"].values())
    assert joules == pytest.approx(sum(sum(line.joules) for line in timeline))
    assert joules == pytest.approx(sum(record.joules for record in folder.rounds()), rel=1e-6)
    reported = np.array([record.reported for record in folder.devices() if record.seen])
    assert totals["participation_gini"] == pytest.approx(gini(reported))
    assert totals["never_reached"] == np.count_nonzero(reported == 0)
    assert totals["peak_memory_bytes"] > 10**7
    assert all(0 <= record.available <= 1 for record in folder.devices())
    assert len({record.available for record in folder.devices()}) > 1


def test_comparison_has_the_columns_and_pictures(run):
    comparison = compare([run], target=0.01)
    headings = figures_table(comparison, PHONES).headings
    assert headings[1] == "hours to\ntarget"
    assert "J per device\nand round" in headings
    assert "rarely\navailable, %" in headings
    (row,) = comparison.rows
    first = RunFolder(run).rounds()[0]
    assert row.values["hours_to_target"].mean == pytest.approx(first.simulated_end / 3600)
    assert classes_table(comparison).rows[0].cells[0].text.isdigit()
    assert len(classes_table(comparison).rows) == len(SPEEDS)
    names = [picture.name for picture in pictures(comparison)]
    assert {"by_hours", "by_joules", "day"} <= set(names)


def test_short_run_is_reported_in_seconds_and_joules_without_a_day(simulation, momentum, on_clock, tmp_path):
    simulation(FedAvg(), tmp_path / "run", fleet=on_clock(momentum, cohort=3), rounds=2, evaluate_every=1).run()
    comparison = compare([tmp_path / "run"])
    summary = RunFolder(tmp_path / "run").summary()
    assert summary.simulated_seconds < 60
    table = figures_table(comparison, PHONES)
    cells = dict(zip(table.headings[1:], table.rows[0].cells, strict=True))
    assert float(cells["simulated\nseconds"].text) == pytest.approx(summary.simulated_seconds, rel=5e-3)
    assert float(cells["total\nJ"].text) == pytest.approx(summary.joules, rel=5e-3)
    assert {"J per device", "busy seconds"} <= set(classes_table(comparison).headings)
    assert "day" not in [picture.name for picture in pictures(comparison)]


def test_deployment_costs_what_its_calls_take(simulation, momentum, on_clock, tmp_path):
    for name, strategy in {"tuned": FedAvgFineTune(2), "global": FedAvg()}.items():
        simulation(strategy, tmp_path / name, fleet=on_clock(momentum, speeds=SPEEDS, unseen=1), rounds=2).run()
    tuned, plain = RunFolder(tmp_path / "tuned"), RunFolder(tmp_path / "global")
    for device in tuned.devices():
        calls = device.deploy_train_calls + device.deploy_infer_calls  # of a second each, at 3 W
        assert calls > 0
        assert device.deploy_seconds == pytest.approx(calls / SPEEDS[device.device_class])
        assert device.deploy_joules == pytest.approx(3 * device.deploy_seconds)
    assert {device.deploy_joules for device in plain.devices()} == {0.0}
    assert tuned.summary().joules == plain.summary().joules  # the rounds are those of FedAvg
    total = sum(device.deploy_joules for device in tuned.devices())
    assert tuned.summary().deploy_joules == pytest.approx(total)
    comparison = compare([tmp_path / "tuned", tmp_path / "global"])
    assert [row.values["deploy_kilojoules"].mean for row in comparison.rows] == [pytest.approx(total / 1e3), 0]
    (energy,) = [cost for cost in COSTS if cost.key == "joules"]
    spent = [energy.of_run(row.runs[0]) for row in comparison.rows]
    assert spent[0] - spent[1] == pytest.approx(total / 1e3)


def test_energy_of_a_selection_leaves_out_devices_that_still_train(simulation, momentum, on_clock, tmp_path):
    fleet = on_clock(momentum, {"kind": "fedbuff", "buffer": 1}, speeds=SPEEDS)
    simulation(FedAvg(), tmp_path, fleet=fleet, rounds=2).run()
    (row,) = compare([tmp_path]).rows
    joules = [each for line in RunFolder(tmp_path).timeline() for each in line.joules]
    assert row.values["joules_each_time"].mean == pytest.approx(sum(joules) / len(joules))


def test_axes_grow_over_the_rounds(run):
    rounds = RunFolder(run).rounds()
    for axis in CLOCK:
        assert (np.diff(axis.positions(rounds)) > 0).all()


def test_the_day_is_the_second_one_where_there_is_one(run):
    timeline = RunFolder(run).timeline()
    assert day_of([]) is None
    assert day_of(timeline) in (0.0, 86400.0)
