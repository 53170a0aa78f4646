import re

import pytest
from written_runs import complete_run, write_run

from odt_sim.persistence.records import DeviceRecord
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.comparison import compare
from odt_sim.report.gains import hurt_devices, wilson
from odt_sim.report.notes import optimism
from odt_sim.report.page import page_html
from odt_sim.report.records import comparison_records
from odt_sim.report.terminal import comparison_text


def run(accuracies, alone, *, seed=0, users=None, metric="accuracy", unseen=()):
    """Return a run whose devices have 10 test examples each."""
    devices = [
        {"device": i, "seen": i not in unseen, metric: value, f"local_{metric}": other}
        | ({"user": users[i]} if users else {})
        for i, (value, other) in enumerate(zip(accuracies, alone, strict=True))
    ]
    task = {"accuracy": "classification", "mse": "regression"}.get(metric, "other")
    summary = {
        "strategy": "fedavg",
        "seed": seed,
        "task": task,
        "metrics": {metric: {}},
        "settings": {"data.digest": "0a"},
    }
    return complete_run(f"run{seed}", summary, devices)


def test_hurt_devices_are_counted():
    found = hurt_devices([run([0.5, 0.4, 0.2, 0.9, 0.7], [0.6, 0.7, 0.2, 0.8, None])], "local")
    assert (found.devices, found.hurt) == (4, 2)
    assert found.range == "15 to 85"  # Wilson's interval of 2 of 4 is 0.150 to 0.850


def test_interval_of_none_is_not_empty():
    low, high = wilson(0.0, 20)
    assert (low, high) == pytest.approx((0.0, 0.161), abs=5e-4)
    assert wilson(1.0, 20) == pytest.approx((1 - high, 1.0))


def test_unseen_devices_are_apart():
    runs = [run([0.5, 0.4, 0.9], [0.6, 0.5, 0.8], unseen=(0,))]
    assert (hurt_devices(runs, "local").devices, hurt_devices(runs, "local", unseen=True).hurt) == (2, 1)
    assert hurt_devices(runs, "global") is None


def test_people_who_return_count_once():
    """With 4 people in 3 seeds, the interval is that of 4, not of 12."""
    users = ["a", "b", "c", "d"]
    runs = [run([0.5, 0.9, 0.9, 0.9], [0.6, 0.8, 0.8, 0.8], seed=seed, users=users) for seed in range(3)]
    assert hurt_devices(runs, "local").interval == pytest.approx(wilson(0.25, 4))


def test_seeds_with_other_devices_have_an_interval_over_seeds():
    fleets = [([0.5, 0.9, 0.9, 0.9]), ([0.5, 0.5, 0.9, 0.9]), ([0.5, 0.5, 0.5, 0.9])]
    runs = [run(accuracies, [0.6, 0.6, 0.6, 0.6], seed=seed) for seed, accuracies in enumerate(fleets)]
    found = hurt_devices(runs, "local")
    half = 4.303 * 0.25 / 3**0.5  # Student's t with two degrees of freedom
    assert found.interval == pytest.approx((max(0, 0.5 - half), min(1, 0.5 + half)), abs=1e-3)
    assert hurt_devices(runs[:2], "local").interval is None


@pytest.fixture
def sweep(tmp_path):
    for name in ("local", "fedavg"):
        folder = RunFolder(write_run(tmp_path / name, name, references=False))
        rows = [{**row, "accuracy": 1.0 if name == "local" else row["accuracy"]} for row in folder.devices()]
        validated = [
            {**row, "validation_accuracy": row["accuracy"] + 0.0234, "validation_examples": row["examples"]}
            for row in rows
        ]
        folder.write_devices(map(DeviceRecord.of, validated))
    return tmp_path


def test_page_and_records_have_the_interval(sweep):
    comparison = compare([sweep])
    (fedavg,) = (row for row in comparison.rows if row.label == "fedavg")
    hurt = fedavg.hurt["hurt_local"]
    assert hurt.hurt > 0
    assert f"<small>{hurt.range}</small>" in page_html(comparison, [])
    record = next(record for record in comparison_records(comparison) if record["label"] == "fedavg")
    assert (record["hurt_local_low"], record["hurt_local_high"]) == hurt.interval


def test_optimism_is_over_devices_with_both_figures(sweep):
    """The fourth device has a test figure only, and the others a validation figure 0.5 above theirs."""
    folder = RunFolder(sweep / "fedavg")
    rows = [{**row, "validation_accuracy": row["accuracy"] + 0.5} for row in folder.devices()]
    rows[3] |= {"accuracy": 1e3, "validation_accuracy": None}
    folder.write_devices(map(DeviceRecord.of, rows))
    (fedavg,) = (row for row in compare([sweep]).rows if row.label == "fedavg")
    assert fedavg.values["optimism"].mean == pytest.approx(0.5)


def test_validation_is_optimistic_by_its_difference_from_the_test(sweep):
    comparison = compare([sweep])
    assert [row.values["optimism"].mean for row in comparison.rows] == pytest.approx([0.0234, 0.0234])
    sentence = (
        "Validation examples determine how strategies adapt to a device, so validation metrics are optimistic. "
        "Validation minus test: +2.3 percentage points."
    )
    assert optimism(comparison) == sentence
    assert sentence in comparison_text(comparison, 160).renderables[0].caption.plain
    page = page_html(comparison, [])
    assert sentence in page
    assert re.search(r"validation\nminus test, points</th>", page)
    assert ">+2.3<" in page
    assert optimism(compare([write_run(sweep / "other" / "0")])) is None
