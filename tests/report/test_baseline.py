import numpy as np
import pytest
from written_runs import complete_run

from odt_sim.report.gains import join_local, known_gains, training_key
from odt_sim.report.run_settings import data_key

METRICS = ("accuracy", "loss")


def make(strategy, accuracies, *overrides, seed=0, examples=10, settings=None):
    devices = [
        {"device": i, "seen": True, "examples": examples, "accuracy": value, "loss": 1 - value, "local_accuracy": None}
        for i, value in enumerate(accuracies)
    ]
    summary = {"strategy": strategy, "seed": seed, "settings": settings, "task": "classification"}
    return complete_run(strategy, summary, devices, (f"strategy={strategy}", *overrides))


def local_accuracies(run):
    return [row["local_accuracy"] for row in run.devices]


def test_every_device_is_joined_with_its_own_local_model():
    local = make("local", [0.5, 0.75])
    fedavg, alone = join_local([make("fedavg", [0.75, 0.5]), local], training_key)
    assert local_accuracies(fedavg) == [0.5, 0.75]
    assert [row["local_loss"] for row in fedavg.devices] == [0.5, 0.25]
    np.testing.assert_array_equal(known_gains(fedavg.devices, METRICS, "local"), [0.25, -0.25])
    assert alone is local


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"examples": 11},
        {"settings": {"fleet.devices": "50"}},
        {"settings": {"partition": "dirichlet alpha=1.0"}},
    ],
)
def test_local_run_on_other_data_is_not_joined(other):
    (fedavg, _) = join_local([make("fedavg", [0.5]), make("local", [0.75], **other)], training_key)
    assert local_accuracies(fedavg) == [None]


@pytest.mark.parametrize(
    "key", ["strategy.max_epochs", "backend", "backend.actors", "tracker", "aggregator", "aggregator.hostile"]
)
def test_settings_without_effect_on_local_training_do_not_separate_runs(key):
    (fedavg, _) = join_local([make("fedavg", [0.5], settings={key: "x"}), make("local", [0.75])], training_key)
    assert local_accuracies(fedavg) == [0.75]


@pytest.mark.parametrize(
    ("changed", "seed", "joined"),
    [
        ({}, 0, 0.75),
        ({"strategy.mu": "0.1"}, 0, 0.75),
        ({"aggregator": "krum", "aggregator.hostile": "0.1"}, 0, 0.75),
        ({}, 1, None),
        ({"run.rounds": "5"}, 0, None),
        ({"train.learning_rate": "0.5"}, 0, None),
        ({"model": "mlp ba9876543210"}, 0, None),
        ({"partition": "dirichlet alpha=1.0"}, 0, None),
    ],
)
def test_recorded_settings_determine_the_baseline(changed, seed, joined):
    common = {
        "run.rounds": "2",
        "train.learning_rate": "0.1",
        "model": "mlp 0123456789ab",
        "partition": "dirichlet alpha=0.3",
    }
    local = make("local", [0.75], settings={**common, "strategy": "local", "strategy.patience": "3"})
    fedprox = make("fedprox", [0.5], seed=seed, settings={**common, "strategy": "fedprox", **changed})
    assert local_accuracies(join_local([fedprox, local], training_key)[0]) == [joined]


@pytest.mark.parametrize("override", ["run.storage=x", "run.evaluate_every=5", "run.resume=x", "train.epochs=1"])
def test_overrides_do_not_matter(override):
    (fedavg, _) = join_local(
        [make("fedavg", [0.5], override, settings={}), make("local", [0.75], settings={})], training_key
    )
    assert local_accuracies(fedavg) == [0.75]


def test_each_data_setting_has_its_own_baseline():
    runs = [
        make(name, [value], seed=seed, settings={"partition": f"dirichlet alpha={alpha}"})
        for name, value, alpha, seed in [
            ("local", 0.1, 1, 0),
            ("local", 0.2, 2, 0),
            ("local", 0.3, 1, 1),
            ("fedavg", 0.9, 1, 1),
            ("fedavg", 0.9, 2, 0),
            ("fedavg", 0.9, 1, 0),
        ]
    ]
    assert [local_accuracies(run) for run in join_local(runs, training_key)[3:]] == [[0.3], [0.2], [0.1]]


def test_reference_itself_has_no_gain():
    same = [{"accuracy": 0.5, "loss": 1.0, "global_accuracy": 0.5, "global_loss": 1.0}] * 2
    assert np.isnan(known_gains(same, METRICS, "global")).all()
    other = [same[0], {**same[0], "loss": 0.9}]  # the same accuracy of another model
    np.testing.assert_array_equal(known_gains(other, METRICS, "global"), [0, 0])


def test_selected_baseline_may_have_other_settings_on_the_same_data():
    local = make("local", [0.75], settings={"data": "digits", "train.learning_rate": "0.5"})
    fedavg = make("fedavg", [0.5], settings={"data": "digits", "train.learning_rate": "0.1"})
    other = make("fedavg", [0.5], settings={"data": "mnist", "train.learning_rate": "0.5"})
    assert [local_accuracies(run) for run in join_local([fedavg, other, local], data_key)] == [
        [0.75],
        [None],
        [None],
    ]


@pytest.mark.parametrize("match_key", [training_key, data_key])
def test_data_sets_of_one_name_differ_by_content(match_key):
    runs = [
        make(name, [value], settings={"data": "visits", "data.digest": digest})
        for name, value, digest in [("local", 0.1, "0a"), ("local", 0.2, "0b"), ("fedavg", 0.9, "0b")]
    ]
    assert local_accuracies(join_local(runs, match_key)[2]) == [0.2]
