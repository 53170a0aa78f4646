import json

from odt_sim.metrics.tasks import TASK_METRICS
from odt_sim.persistence.records import columns_of
from odt_sim.persistence.summary import Summary, summarize

TASK = {"task": "classification", "metrics": TASK_METRICS["classification"]}
COMMON = {"strategy": "fedper", "seed": 3, "cohort": None, **TASK}
REGRESSION = {"task": "regression", "metrics": TASK_METRICS["regression"]}
ROUND = {"round": 1, "devices": 2, "excluded": 1, "train_loss": 1.0, "bytes_down": 100, "bytes_up": 50, "seconds": 0.5}
COSTS = ("train_calls", "infer_calls", "deploy_train_calls", "deploy_infer_calls", "state_bytes")


def device(number, accuracy, **columns):
    row = {"device": number, "seen": True, "train_examples": 8, "examples": 2, "accuracy": accuracy, "loss": 1.0}
    return row | {"global_accuracy": None, "local_accuracy": None} | columns


def test_summary_adds_up():
    devices = [
        device(0, 0.5, local_accuracy=0.75, validation_accuracy=0.5, validation_examples=3),
        device(1, 1.0, local_accuracy=0.75, validation_accuracy=1.0, validation_examples=1),
        device(2, 0.25, seen=False, local_accuracy=1.0),
    ]
    summary = summarize([ROUND, ROUND], devices, **COMMON)
    assert [name for name in columns_of(Summary) if name not in Summary.OPTIONAL] == list(summary)
    assert (summary["strategy"], summary["seed"], summary["cohort"]) == ("fedper", 3, None)
    assert (summary["rounds"], summary["reported_round"]) == (2, 2)
    assert (summary["devices"], summary["unseen"]) == (3, 1)
    assert (summary["train_examples"], summary["examples"]) == (24, 6)
    assert (summary["bytes_down"], summary["bytes_up"], summary["seconds"], summary["excluded"]) == (200, 100, 1.0, 2)
    assert summary["metrics"]["accuracy"]["mean"] == 0.75
    assert repr(summary) == "Summary(fedper, seed 3: 2 rounds, 3 devices, accuracy 0.75)"
    assert summary["metrics_unseen"]["accuracy"]["mean"] == 0.25
    validation = summary["metrics_validation"]["accuracy"]
    assert (validation["mean"], validation["weighted_mean"]) == (0.75, 0.625)
    assert summary["fraction_hurt_local"] == 0.5  # one of the two seen devices
    assert summary["fraction_hurt_global"] is None
    json.dumps(dict(summary), allow_nan=False)


def test_settings_are_recorded_as_given():
    settings = {"strategy": "local", "run.rounds": "2"}
    given = summarize([], [], strategy="local", seed=0, cohort=None, settings=settings, **REGRESSION)
    assert given["settings"] == settings
    assert summarize([], [], strategy="local", seed=0, **REGRESSION, cohort=None)["settings"] is None


def test_summary_counts_evaluated_devices():
    devices = [device(3, 0.5), device(8, 1.0, seen=False)]
    sampled = summarize([ROUND], devices, fleet=(100, 20), **COMMON)
    assert (sampled["devices"], sampled["unseen"], sampled["evaluated"], sampled["examples"]) == (100, 20, 2, 4)
    every_one = summarize([ROUND], devices, **COMMON)
    assert (every_one["devices"], every_one["unseen"], every_one["evaluated"]) == (2, 1, 2)


def test_unknown_figures_are_null():
    summary = summarize([], [], strategy="local", seed=0, **REGRESSION, cohort=4)
    assert summary["metrics"] == summary["metrics_unseen"] == dict.fromkeys(["mse", "mae", "loss", "r2"])
    assert (summary["fraction_hurt_local"], summary["seconds"], summary["cohort"]) == (None, 0, 4)


def test_columns_missing_from_older_records_are_null():
    summary = summarize([ROUND], [device(0, 0.5)], **COMMON)
    assert [summary[key] for key in COSTS] == [None] * 5
    assert [summary[f"metrics_{part}"]["accuracy"] for part in ("train", "others", "unseen_adapted")] == [None] * 3


def test_calls_and_states_add_up():
    devices = [device(i, 0.5, deploy_train_calls=i, deploy_infer_calls=2 * i, state_bytes=10 * i) for i in (1, 2)]
    rounds = [{**ROUND, "train_calls": 5, "infer_calls": 0}, {**ROUND, "train_calls": 7, "infer_calls": 1}]
    summary = summarize(rounds, devices, **COMMON)
    assert [summary[key] for key in COSTS] == [12, 1, 3, 6, 15]


def test_each_split_is_weighted_by_its_examples():
    devices = [
        device(0, 0.5, train_accuracy=1.0, others_accuracy=0.25, train_examples=1, examples=3),
        device(1, 0.5, train_accuracy=0.5, others_accuracy=0.75, train_examples=3, examples=1),
        device(2, 0.5, seen=False, train_accuracy=0.0, others_accuracy=0.0, adapted_accuracy=0.75),
    ]
    summary = summarize([ROUND], devices, **COMMON)
    means = {part: summary[f"metrics_{part}"]["accuracy"] for part in ("train", "others", "unseen_adapted")}
    assert [found["weighted_mean"] for found in means.values()] == [0.625, 0.375, 0.75]
