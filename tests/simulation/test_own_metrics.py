"""Metrics of the user in rounds, devices, summary, selection and report."""

import importlib
import json
from pathlib import Path

import pytest

from odt_sim import Device
from odt_sim.deploy.write import deploy
from odt_sim.errors import ConfigurationError
from odt_sim.metrics.rounds import reported_round
from odt_sim.persistence.run import load_run
from odt_sim.report.comparison import compare
from odt_sim.report.page import page_html
from odt_sim.report.records import comparison_document
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local


@pytest.fixture
def own(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("own_metrics")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_columns_are_in_rounds_devices_and_summary(own, simulation, tmp_path):
    made = simulation(FedAvg(), tmp_path, metrics=[own.first_class, own.worst_margin])
    summary = made.run()
    assert list(summary.metrics) == ["accuracy", "loss", "balanced_accuracy", "auc", "first_class", "worst_margin"]
    assert summary.own_metrics == {"first_class": True, "worst_margin": False}
    assert {"first_class", "first_class_unweighted", "validation_first_class"} <= lines(tmp_path / "rounds.jsonl")[
        1
    ].keys()
    rows = lines(tmp_path / "devices.jsonl")
    for device, row in zip(made.deployed([row["device"] for row in rows]), rows, strict=True):
        x, y = device.test_examples.take()
        outputs = device.infer(x)
        assert row["first_class"] == pytest.approx(own.first_class(outputs, y))
        assert row["worst_margin"] == pytest.approx(own.worst_margin(outputs, y))
        assert {"train_first_class", "validation_first_class", "global_first_class"} <= row.keys()


def test_threshold_comes_from_the_own_training_examples(own, simulation, tmp_path):
    made = simulation(FedAvg(), tmp_path / "run", metrics=[own.unusual])
    made.run()
    rows = lines(tmp_path / "run" / "devices.jsonl")
    for device, row in zip(made.deployed([row["device"] for row in rows]), rows, strict=True):
        train = device.train_examples.take()
        pairs = {
            part: (device.infer(x), y) for part, (x, y) in (("train", train), ("test", device.test_examples.take()))
        }
        assert row["unusual"] == pytest.approx(own.unusual(*pairs["test"], pairs["train"]))
        assert row["train_unusual"] == pytest.approx(own.unusual(*pairs["train"], pairs["train"]))
        files = deploy(made, tmp_path / "files", [device.id], ["float32"])
        assert [file["unusual"] for [*of_device] in files for file in of_device] == [row["unusual"]] * 2


def test_run_without_own_metrics_has_the_same_bits(own, results, simulation, tmp_path):
    plain = results(FedAvg(), tmp_path / "plain")
    measured = results(FedAvg(), tmp_path / "measured", metrics=[own.first_class])
    assert plain.tensors.keys() == measured.tensors.keys()
    for name, tensor in plain.tensors.items():
        if name != "records":  # the checksum of the records, which have more columns
            assert tensor.tobytes() == measured.tensors[name].tobytes()
    assert "own_metrics" not in plain.summary


@pytest.mark.parametrize("name", ["worst_margin", "loss"])
def test_chosen_metric_decides_the_reported_round(name, own, simulation, tmp_path):
    made = simulation(FedAvg(), tmp_path, rounds=6, evaluate_every=1, metrics=[own.worst_margin], metric=name)
    summary = made.run()
    assert next(iter(summary.metrics)) == name
    assert summary.reported_round == reported_round(lines(tmp_path / "rounds.jsonl"), name)
    assert summary.settings["run.metric"] == name


def test_run_warns_once_of_a_metric_that_is_never_defined(own, simulation, tmp_path):
    made = simulation(FedAvg(), tmp_path, metrics=[own.first_class, own.never], evaluate_every=1)
    with pytest.warns(UserWarning, match="metrics: never: no finite value on any device in any round") as caught:
        made.run()
    assert len([each for each in caught if "metrics:" in str(each.message)]) == 1


def test_run_warns_that_its_metric_chooses_no_round(simulation, fleet_data, tmp_path):
    parts = (fleet_data.y[fleet_data.validation(device)] for device in range(fleet_data.devices))
    validation = {tuple(part.tolist()) for part in parts}

    def on_test(outputs, targets):
        return None if tuple(targets.tolist()) in validation else float(outputs.max())

    made = simulation(FedAvg(), tmp_path, rounds=2, evaluate_every=1, metrics=[on_test], metric="on_test")
    with pytest.warns(UserWarning, match="run.metric: on_test is undefined on the validation examples of all devices"):
        assert made.run().reported_round == 2
    assert "The reported round is the last one" in page_html(compare([tmp_path]), [])


def test_report_compares_by_it(own, simulation, tmp_path):
    for strategy in (FedAvg(), Local()):
        simulation(strategy, tmp_path / strategy.name, metrics=[own.worst_margin], metric="worst_margin").run()
    comparison = compare([tmp_path])
    assert comparison.metric == "worst_margin"
    assert comparison_document(comparison, tmp_path)["higher_is_better"] is False
    means = {row.label: row.values["weighted_mean"].mean for row in comparison.rows}
    column = next(column for column in comparison.columns if column.key == "weighted_mean")
    assert [row.label for row in comparison.rows if comparison.is_best(row, column)] == [min(means, key=means.get)]


def test_reports_of_another_process_read_the_direction(own, simulation, tmp_path, monkeypatch):
    simulation(FedAvg(), tmp_path, metrics=[own.worst_margin]).run()
    monkeypatch.setattr("odt_sim.metrics.names._OWN", {})
    run = load_run(tmp_path)
    from odt_sim.metrics.names import higher_is_better

    assert run.metrics[-1] == "worst_margin"
    assert not higher_is_better("worst_margin")


def test_single_device_measures_it(own, momentum, fleet_data):
    from odt_sim.metrics.own import own_metrics

    rows = fleet_data.train(0)
    pair = (fleet_data.x[rows], fleet_data.y[rows])
    device = Device(momentum, train=pair, test=pair, metrics=own_metrics([own.first_class]))
    assert device.evaluate()["first_class"] == pytest.approx(own.first_class(device.infer(pair[0]), pair[1]))


def test_unknown_metric_and_taken_names_are_refused(own, simulation, tmp_path):
    with pytest.raises(ConfigurationError, match=r"run\.metric: expected one of accuracy, loss, .*, found f1"):
        simulation(FedAvg(), tmp_path, metric="f1")
    with pytest.raises(ConfigurationError, match="metrics: train_share is already the name of a column"):
        simulation(FedAvg(), tmp_path, metrics=[own.train_share])
