import json
from dataclasses import replace

import numpy as np
import pytest
from written_runs import round_record, write_hydra, write_run

from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.metrics.tasks import TASK_METRICS
from odt_sim.persistence.run_folder import SUMMARY, RunFolder
from odt_sim.report.columns import comparison_columns
from odt_sim.report.comparison import compare
from odt_sim.report.description import result
from odt_sim.report.notes import other_seeds, reported
from odt_sim.report.page import page_html
from odt_sim.report.records import comparison_records

COLUMN = {column.key: column for column in comparison_columns(TASK_METRICS["classification"])}


def edit_summary(path, metric="accuracy", part="metrics", **figures):
    """Change results in a run's summary, so that means over runs are known."""
    summary = json.loads((path / SUMMARY).read_text())
    of_part = summary.setdefault(part, {})
    of_part[metric] = (of_part.get(metric) or {}) | figures
    RunFolder(path).write_summary(summary)


def extend_summary(path, **keys):
    RunFolder(path).write_summary({**RunFolder(path).summary(), **keys})


def test_seeds_are_merged_into_mean_and_deviation(tmp_path):
    for seed, mean in enumerate((0.5, 0.6, 0.7)):
        edit_summary(write_run(tmp_path / str(seed), "fedavg", seed), weighted_mean=mean)
    (row,) = compare([tmp_path]).rows
    assert (row.label, len(row.runs)) == ("fedavg", 3)
    figure = row.values["weighted_mean"]
    assert (figure.mean, figure.std) == pytest.approx((0.6, 0.1))  # the sample deviation of 0.5, 0.6, 0.7


def test_single_seed_has_no_deviation(tmp_path):
    path = write_run(tmp_path / "run", "fedavg", unseen=0, references=False)
    (row,) = compare([path]).rows
    summary = RunFolder(path).summary()
    for key in ("weighted_mean", "mean", "std", "bottom_decile", "worst"):
        assert (row.values[key].mean, row.values[key].std) == (summary["metrics"]["accuracy"][key], None)
    assert row.values["megabytes"].mean == pytest.approx((summary["bytes_down"] + summary["bytes_up"]) / 1e6)
    assert row.values["unseen"] is row.values["hurt_local"] is row.values["hurt_global"] is None


def test_metric_of_the_user_hides_no_figure_of_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr("odt_sim.metrics.names._OWN", {})
    path = write_run(tmp_path / "run")
    worst = RunFolder(path).summary()["metrics"]["accuracy"]["worst"]
    for name in ("worst", "label", "f1"):
        edit_summary(path, metric=name, weighted_mean=0.25)
    extend_summary(path, own_metrics=dict.fromkeys(("worst", "label", "f1"), True))
    (record,) = comparison_records(compare([path]))
    assert (record["label"], record["worst"]) == ("fedavg", worst)
    assert [record[name] for name in ("metric_worst", "metric_label", "f1")] == [0.25] * 3


def test_hurt_is_counted_device_by_device_against_the_local_run(tmp_path):
    paths = [write_run(tmp_path / name, name, references=False) for name in ("local", "fedavg")]
    local, fedavg = ({row["device"]: row for row in RunFolder(path).devices()} for path in paths)
    seen = [device for device, row in fedavg.items() if row["seen"]]
    worse = sum(fedavg[device]["accuracy"] < local[device]["accuracy"] for device in seen)
    rows = {row.label: row for row in compare(paths).rows}
    assert rows["fedavg"].values["hurt_local"].mean == worse / len(seen)
    assert rows["local"].values["hurt_local"] is None
    (alone,) = compare(paths[1:]).rows
    assert alone.values["hurt_local"] is None


def test_rows_are_labelled_by_their_overrides(tmp_path):
    for number, (strategy, alpha) in enumerate([("fedavg", 0.1), ("fedavg", 1.0), ("local", 0.1), ("local", 1.0)]):
        write_run(tmp_path / str(number), strategy, overrides=[f"partition.alpha={alpha}", "fleet.devices=20"])
    labels = [row.label for row in compare([tmp_path]).rows]
    assert labels == [f"{name} partition.alpha={alpha}" for name in ("fedavg", "local") for alpha in (0.1, 1.0)]


def test_runs_from_python_are_grouped_by_their_settings(tmp_path):
    for strategy in ("local", "fedavg"):
        for rounds in ("2", "5"):
            settings = {"strategy": strategy, "run.rounds": rounds}
            for seed in (0, 1):
                folder = tmp_path / f"{strategy}-{rounds}-{seed}"
                write_run(folder, strategy, seed, hydra=False, settings=settings, rounds=int(rounds))
    rows = {row.label: row for row in compare([tmp_path]).rows}
    assert list(rows) == [f"{name} run.rounds={rounds}" for name in ("fedavg", "local") for rounds in (2, 5)]
    for rounds in (2, 5):
        for run, alone in zip(*(rows[f"{name} run.rounds={rounds}"].runs for name in ("fedavg", "local")), strict=True):
            assert run.summary["seed"] == alone.summary["seed"]
            joined = [device["local_accuracy"] for device in run.devices]
            assert joined == [device["accuracy"] for device in alone.devices]


def test_repeated_seed_is_not_a_second_seed(tmp_path):
    for name in ("first", "second"):
        write_run(tmp_path / name, "fedavg", 0)
    rows = compare([tmp_path]).rows
    assert [row.label for row in rows] == ["fedavg (first)", "fedavg (second)"]
    assert all(row.values["mean"].std is None for row in rows)


def test_failed_run_of_a_user_strategy_is_named_by_its_class(tmp_path):
    overrides = ["model=softmax", "fleet.devices=5"]
    write_run(tmp_path / "0", overrides=overrides, settings={"model": "softmax 1f2e3d4c5b6a"})
    for number, target in ((1, "mine.Exits"), (2, "mine.MeanTuned")):
        path = tmp_path / str(number)
        write_hydra(path, [f"strategy._target_={target}", *overrides])
        RunFolder(path).write_failure("no memory", [])
    assert [failure.label for failure in compare([tmp_path]).failures] == ["Exits", "MeanTuned"]


def test_failed_and_damaged_runs_are_listed(sweep, tmp_path):
    damaged = write_run(tmp_path / "torn")
    (damaged / SUMMARY).write_text("{")
    found = compare([sweep, tmp_path])
    assert [row.label for row in found.rows] == ["local", "fedavg", "fedavg_finetune", "fedper"]
    assert all(len(row.runs) == 3 for row in found.rows)
    failed, torn = found.failures
    assert failed.label == "fedprox seed=1"
    assert failed.error == "fedprox needs 'set_gradient_offset'; export the model again"
    assert torn.label == "torn"
    assert "damaged" in torn.error


def best_rows(comparison, column):
    """Return the labels of the rows that are marked in a column."""
    return [row.label for row in comparison.rows if comparison.is_best(row, column)]


def test_best_of_a_column_follows_its_metric(tmp_path):
    for number, (name, mse) in enumerate([("local", 0.5), ("fedavg", 0.25), ("fedper", 0.75)]):
        edit_summary(write_run(tmp_path / str(number), name, task="regression"), "mse", weighted_mean=mse)
    found = compare([tmp_path])
    assert found.metric == "mse"
    of_error = {column.key: column for column in found.columns}
    assert best_rows(found, of_error["weighted_mean"]) == ["fedavg"]
    assert [of_error[key].higher_is_better for key in ("worst", "r2", "mae")] == [False, True, False]


def test_single_row_has_no_best(tmp_path):
    found = compare([write_run(tmp_path / "run")])
    assert not any(best_rows(found, column) for column in COLUMN.values())


@pytest.mark.parametrize(("calls", "best"), [((4, 4, 4), ""), ((4, 4, 5), ""), ((4, 4, 5, 6), "01"), ((5, 4, 6), "1")])
def test_value_of_most_rows_is_not_marked_as_best(tmp_path, calls, best):
    for number, count in enumerate(calls):
        extend_summary(write_run(tmp_path / str(number), f"strategy_{number}"), train_calls=count)
    found = compare([tmp_path])
    assert best_rows(found, COLUMN["train_calls"]) == [f"strategy_{number}" for number in best]


def test_best_and_headline_are_those_of_each_data(tmp_path):
    skewed = {"partition": "dirichlet alpha=0.3"}
    for name, skill, settings in (
        *(("local", 0.9, skewed), ("fedavg", 0.8, skewed)),
        *(("local", 0.5, {"partition": "iid"}), ("fedavg", 0.7, {"partition": "iid"})),
    ):
        folder = tmp_path / f"{name}-{skill}"
        edit_summary(write_run(folder, name, settings=settings), "accuracy", weighted_mean=skill)
    found = compare([tmp_path])
    best = {row.label for row in found.rows if found.is_best(row, COLUMN["weighted_mean"])}
    assert best == {"local partition=dirichlet", "fedavg partition=iid"}
    text = result(found)
    assert text.startswith(
        "Highest mean test accuracy of the seen devices, weighted by test examples, for each data set,"
    )
    assert "local partition=dirichlet with 90.0\N{NO-BREAK SPACE}%, followed by fedavg partition=dirichlet" in text
    assert "fedavg partition=iid with 70.0\N{NO-BREAK SPACE}%, followed by local partition=iid" in text


@pytest.mark.parametrize(
    ("p", "difference", "doubt"),
    [
        (0.2, 0.1, " (not significantly, by the paired test)."),
        (0.01, 0.1, "."),
        (0.01, -0.1, " (not significantly, by the paired test)."),  # every device counts once there
        (None, 0.1, " (within one standard deviation over seeds)."),
    ],
)
def test_headline_follows_the_paired_test(tmp_path, p, difference, doubt):
    for seed, (best, second) in enumerate([(0.9, 0.8), (0.7, 0.75), (0.8, 0.7)]):
        for name, skill in (("local", best), ("fedavg", second)):
            edit_summary(write_run(tmp_path / f"{name}-{seed}", name, seed), "accuracy", weighted_mean=skill)
    found = compare([tmp_path])
    [pair] = found.paired
    assert (pair.label, pair.reference) == ("local", "fedavg")
    text = result(replace(found, paired=(replace(pair, p_holm=p, difference=difference),)))
    assert f"followed by fedavg with 75.0\N{NO-BREAK SPACE}%{doubt}" in text


def test_rows_of_other_seeds_are_named_on_each_data(tmp_path):
    for partition, name, seeds in (
        *(("iid", "local", (0, 1, 2)), ("iid", "fedavg", (0, 1, 2)), ("iid", "fedper", (0, 2))),
        *(("by_user", "local", (5,)), ("by_user", "fedavg", (5,))),
    ):
        for seed in seeds:
            write_run(tmp_path / f"{partition}-{name}-{seed}", name, seed, settings={"partition": partition})
    found = compare([tmp_path])
    text = other_seeds(found)
    assert text.startswith(
        "Different seeds: 0, 1, 2 (fedavg partition=iid, local partition=iid); 0, 2 (fedper partition=iid). "
    )
    assert text in page_html(found, [])
    assert other_seeds(compare(sorted(tmp_path.glob("*-0")))) is None


def test_seconds_have_no_best(tmp_path):
    for name in ("local", "fedavg"):
        write_run(tmp_path / name, name)
    found = compare([tmp_path])
    assert len({row.values["seconds"].mean for row in found.rows}) == 2
    assert best_rows(found, COLUMN["seconds"]) == []


def test_runs_of_different_tasks_are_refused(tmp_path):
    write_run(tmp_path / "0")
    write_run(tmp_path / "1", task="regression")
    with pytest.raises(ConfigurationError, match=r"1 is regression, by mse, and .*0 is classification, by accuracy"):
        compare([tmp_path])


def test_unknown_metric_is_refused(tmp_path):
    path = write_run(tmp_path / "0")
    RunFolder(path).write_summary({**RunFolder(path).summary(), "metrics": {"glory": None}})
    with pytest.raises(
        CheckpointError, match="has glory, which this version of odt_sim does not support; upgrade odt_sim"
    ):
        compare([path])


def test_failures_alone_make_a_comparison_without_rows(tmp_path):
    RunFolder(tmp_path).write_failure("no memory", ["strategy=fedavg"])
    found = compare([tmp_path])
    assert found.rows == ()
    assert [failure.label for failure in found.failures] == ["fedavg"]


def test_every_figure_of_a_summary_has_its_column(tmp_path):
    path = write_run(tmp_path / "0")
    edit_summary(path, part="metrics_unseen", mean=0.5, worst=0.25)
    edit_summary(path, part="metrics_unseen_adapted", mean=0.75, worst=0.375)
    edit_summary(path, part="metrics_others", mean=0.4, weighted_mean=0.1)
    edit_summary(path, part="metrics_train", weighted_mean=0.9)
    edit_summary(path, part="metrics_validation", weighted_mean=0.6, devices=16)
    edit_summary(path, "auc", weighted_mean=0.8)
    extend_summary(path, bytes_down=3_000_000, bytes_up=1_000_000, state_bytes=1500, reported_round=7)
    extend_summary(path, train_calls=40, infer_calls=30, deploy_train_calls=20, deploy_infer_calls=10)
    (row,) = compare([path]).rows
    expected = {
        **{"unseen": 0.5, "unseen_worst": 0.25, "unseen_adapted": 0.75, "unseen_adapted_worst": 0.375},
        **{"others": 0.4, "train": 0.9, "validation": 0.6, "auc": 0.8},
        **{"megabytes": 4, "megabytes_down": 3, "megabytes_up": 1, "state_kilobytes": 1.5, "reported_round": 7},
        **{"train_calls": 40, "infer_calls": 30, "deploy_train_calls": 20, "deploy_infer_calls": 10},
    }
    assert {key: row.values[key].mean for key in expected} == expected
    assert set(row.values) == set(COLUMN)


def test_columns_without_figures_are_left_out(tmp_path):
    paths = [write_run(tmp_path / name, name) for name in ("local", "fedavg")]
    assert "train_calls" not in {column.key for column in compare(paths).columns}
    extend_summary(paths[0], train_calls=40)
    found = compare(paths)
    assert "train_calls" in {column.key for column in found.columns}
    assert [row.values["train_calls"] and row.values["train_calls"].mean for row in found.rows] == [40, None]


def rounds(path, *accuracies):
    """Replace the evaluated rounds of a run."""
    RunFolder(path).truncate_rounds(0)
    for number, value in enumerate(accuracies, 1):
        RunFolder(path).append_rounds(round_record(number, accuracy=value))


def test_rounds_are_counted_to_a_target(tmp_path):
    paths = [write_run(tmp_path / str(seed), "fedavg", seed) for seed in (0, 1)]
    rounds(paths[0], 0.5, 0.75, 0.5, 0.75)
    rounds(paths[1], 0.5, None, 0.7, 0.8)

    def needed(target):
        (row,) = compare(paths, target=target).rows
        return row.values["rounds_to_target"]

    assert needed(0.75).mean == 3  # 2 and 4
    assert needed(0.5).mean == 1
    assert needed(0.8) is None  # the first seed does not reach it
    assert needed(None) is None


def test_recorded_target_is_the_default(tmp_path):
    paths = [write_run(tmp_path / str(seed), "fedavg", seed) for seed in (0, 1)]
    for path in paths:
        extend_summary(path, target=0.5)
        rounds(path, 0.25, 0.75)
    found = compare(paths)
    assert (found.target, found.rows[0].values["rounds_to_target"].mean) == (0.5, 2)
    extend_summary(paths[0], target=0.6)
    found = compare(paths)
    assert (found.target, found.rows[0].values["rounds_to_target"]) == (None, None)


def test_unreached_target_keeps_its_column(tmp_path):
    path = write_run(tmp_path / "0")
    assert "rounds_to_target" in {column.key for column in compare([path], target=1.0).columns}
    assert "rounds_to_target" not in {column.key for column in compare([path]).columns}


@pytest.fixture
def rates(tmp_path):
    """Two strategies at two learning rates; validation and test disagree on which is better for fedavg."""
    figures = {
        ("local", "0.01"): (0.9, 0.5),
        ("local", "0.1"): (0.6, 0.4),
        ("fedavg", "0.01"): (0.5, 0.9),
        ("fedavg", "0.1"): (0.7, 0.6),
    }
    for number, ((strategy, rate), (validation, test)) in enumerate(figures.items()):
        settings = {"strategy": strategy, "data": "digits", "train.learning_rate": rate}
        overrides = [f"train.learning_rate={rate}"]
        path = write_run(tmp_path / str(number), strategy, overrides=overrides, settings=settings)
        edit_summary(path, weighted_mean=test)
        edit_summary(path, part="metrics_validation", weighted_mean=validation, devices=16)
    return tmp_path


def test_selected_configurations_are_marked(rates):
    rows = compare([rates]).rows
    assert [row.label for row in rows if row.chosen] == [
        "local train.learning_rate=0.01",
        "fedavg train.learning_rate=0.1",
    ]
    assert {row.selection.candidates for row in rows} == {2}


def test_best_keeps_only_selected_configurations(rates):
    found = compare([rates], best=True)
    assert [row.label for row in found.rows] == ["local train.learning_rate=0.01", "fedavg train.learning_rate=0.1"]
    assert (
        found.rows[1].values["weighted_mean"].mean == 0.6
    )  # the test figure of the configuration chosen on validation


def test_selected_configurations_are_compared_with_the_selected_local_one(rates):
    """The local baseline at the learning rate that suits fedavg would be too weak."""
    for best, baseline in ((False, "1"), (True, "0")):
        local = {row["device"]: row["accuracy"] for row in RunFolder(rates / baseline).devices()}
        fedavg = next(row for row in compare([rates], best=best).rows if row.label == "fedavg train.learning_rate=0.1")
        assert {row["device"]: row["local_accuracy"] for row in fedavg.runs[0].devices} == local


def test_pairs_use_the_given_reference(rates):
    assert {row.reference for row in compare([rates]).paired} == {"fedavg train.learning_rate=0.1"}
    assert [row.label for row in compare([rates], best=True).paired] == ["local train.learning_rate=0.01"]
    against = compare([rates], against="local train.learning_rate=0.1").paired
    assert [row.reference for row in against] == ["local train.learning_rate=0.1"] * 3


def test_another_metric_is_compared_for_the_rounds_and_configurations_that_the_first_chose(tmp_path):
    for number, (strategy, rate) in enumerate([("local", 0.1), ("fedavg", 0.1), ("fedavg", 1.0)]):
        path = write_run(tmp_path / str(number), strategy, overrides=[f"train.learning_rate={rate}"])
        for metric in ("accuracy", "loss"):  # the accuracies choose rate 1, the losses would choose rate 0.1
            edit_summary(path, metric, "metrics_validation", devices=16, weighted_mean=rate)
    first, by_loss = compare([tmp_path]), compare([tmp_path], metric="loss")
    assert (first.metric, by_loss.metric) == ("accuracy", "loss")
    assert [row.chosen for row in by_loss.rows] == [row.chosen for row in first.rows] == [False, False, True]
    assert [row.improving for row in by_loss.rows] == [row.improving for row in first.rows]
    local, fedavg, _ = by_loss.rows
    for row, number in ((local, 0), (fedavg, 1)):
        figures = RunFolder(tmp_path / str(number)).summary()["metrics"]["loss"]
        assert (row.values["worst"].mean, row.values["accuracy"].mean) == (
            figures["worst"],
            first.rows[number].values["weighted_mean"].mean,
        )
    losses = ({r["device"]: r["loss"] for r in RunFolder(tmp_path / n).devices() if r["seen"]} for n in ("0", "1"))
    alone, together = losses
    assert fedavg.values["hurt_local"].mean == np.mean([together[device] > alone[device] for device in alone])
    assert "no round has a validation accuracy" in reported(by_loss)
    with pytest.raises(
        ConfigurationError, match=r"^--metric: expected a metric of all runs, found f1; .*0 has accuracy, loss"
    ):
        compare([tmp_path], metric="f1")
