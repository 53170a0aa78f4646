import json

import pytest

from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.report.comparison import COLUMNS, compare
from odt_sim.report.records import SUMMARY, RunFolder

COLUMN = {column.key: column for column in COLUMNS}


def edit_summary(path, metric="accuracy", **figures):
    """Changes figures of a run's summary, so that means over runs are known."""
    summary = json.loads((path / SUMMARY).read_text())
    summary["metrics"][metric] |= figures
    RunFolder(path).write_summary(summary)


def test_seeds_are_merged_into_mean_and_deviation(write_run, tmp_path):
    for seed, mean in enumerate((0.5, 0.6, 0.7)):
        edit_summary(write_run(tmp_path / str(seed), "fedavg", seed), weighted_mean=mean)
    (row,) = compare([tmp_path]).rows
    assert (row.label, len(row.runs)) == ("fedavg", 3)
    figure = row.values["weighted_mean"]
    assert (figure.mean, figure.std) == pytest.approx((0.6, 0.1))  # the sample deviation of 0.5, 0.6, 0.7


def test_a_single_seed_has_no_deviation(write_run, tmp_path):
    path = write_run(tmp_path / "run", "fedavg", unseen=0, references=False)
    (row,) = compare([path]).rows
    summary = RunFolder(path).summary()
    for key in ("weighted_mean", "mean", "std", "bottom_decile", "worst"):
        assert (row.values[key].mean, row.values[key].std) == (summary["metrics"]["accuracy"][key], None)
    assert row.values["megabytes"].mean == pytest.approx((summary["bytes_down"] + summary["bytes_up"]) / 1e6)
    assert row.values["unseen"] is row.values["hurt_local"] is row.values["hurt_global"] is None


def test_hurt_is_counted_device_by_device_against_the_local_run(write_run, tmp_path):
    paths = [write_run(tmp_path / name, name, references=False) for name in ("local", "fedavg")]
    local, fedavg = ({row["device"]: row for row in RunFolder(path).devices()} for path in paths)
    seen = [device for device, row in fedavg.items() if row["seen"]]
    worse = sum(fedavg[device]["accuracy"] < local[device]["accuracy"] for device in seen)
    rows = {row.label: row for row in compare(paths).rows}
    assert rows["fedavg"].values["hurt_local"].mean == worse / len(seen)
    assert rows["local"].values["hurt_local"] is None
    (alone,) = compare(paths[1:]).rows
    assert alone.values["hurt_local"] is None


def test_rows_are_told_apart_by_their_overrides(write_run, tmp_path):
    for number, (strategy, alpha) in enumerate([("fedavg", 0.1), ("fedavg", 1.0), ("local", 0.1), ("local", 1.0)]):
        write_run(tmp_path / str(number), strategy, overrides=[f"partition.alpha={alpha}", "fleet.devices=20"])
    labels = [row.label for row in compare([tmp_path]).rows]
    assert labels == [f"{name} partition.alpha={alpha}" for name in ("fedavg", "local") for alpha in (0.1, 1.0)]


def test_runs_from_python_are_told_apart_and_joined_by_their_settings(write_run, tmp_path):
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


def test_the_same_seed_run_twice_is_not_two_seeds(write_run, tmp_path):
    for name in ("first", "second"):
        write_run(tmp_path / name, "fedavg", 0)
    rows = compare([tmp_path]).rows
    assert [row.label for row in rows] == ["fedavg (first)", "fedavg (second)"]
    assert all(row.values["mean"].std is None for row in rows)


def test_failed_and_damaged_runs_are_named_beside_the_others(sweep, write_run, tmp_path):
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


def test_the_best_of_a_column_follows_its_metric(write_run, tmp_path):
    for number, (name, mse) in enumerate([("local", 0.5), ("fedavg", 0.25), ("fedper", 0.75)]):
        edit_summary(write_run(tmp_path / str(number), name, task="regression"), "mse", weighted_mean=mse)
    found = compare([tmp_path])
    assert found.metric == "mse"
    assert found.best(COLUMN["weighted_mean"]) == 0.25
    assert not found.higher_is_better(COLUMN["worst"])


def test_nothing_is_best_of_one(write_run, tmp_path):
    found = compare([write_run(tmp_path / "run")])
    assert [found.best(column) for column in COLUMNS] == [None] * len(COLUMNS)


def test_the_fastest_is_not_the_best(write_run, tmp_path):
    for name in ("local", "fedavg"):
        write_run(tmp_path / name, name)
    found = compare([tmp_path])
    assert len({row.values["seconds"].mean for row in found.rows}) == 2
    assert found.best(COLUMN["seconds"]) is None


def test_runs_of_different_tasks_are_refused(write_run, tmp_path):
    write_run(tmp_path / "0")
    write_run(tmp_path / "1", task="regression")
    with pytest.raises(ConfigurationError, match=r"1 is regression and .*0 is classification"):
        compare([tmp_path])


def test_an_unknown_task_is_refused(write_run, tmp_path):
    path = write_run(tmp_path / "0")
    RunFolder(path).write_summary({**RunFolder(path).summary(), "task": "ranking"})
    with pytest.raises(CheckpointError, match="its task is 'ranking', expected classification or regression"):
        compare([path])


def test_only_failures_make_a_comparison_without_rows(tmp_path):
    RunFolder(tmp_path).write_failure("no memory", ["strategy=fedavg"])
    found = compare([tmp_path])
    assert found.rows == ()
    assert [failure.label for failure in found.failures] == ["fedavg"]
