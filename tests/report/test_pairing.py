import pytest
from written_runs import complete_run

from odt_sim.errors import ConfigurationError
from odt_sim.report.pairing import pair_all
from odt_sim.report.selection import Selection

SETTINGS = {"data": "digits", "partition": "dirichlet alpha=0.3", "fleet.devices": "8", "fleet.unseen": "1"}
GAINS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def make(strategy, accuracies, *, seed=0, task="classification", settings=SETTINGS, examples=10, overrides=()):
    metric = {"classification": "accuracy", "regression": "mse"}[task]
    devices = [
        {"device": i, "seen": i > 0, "train_examples": 40, "examples": examples, metric: value}
        for i, value in enumerate((0.0, *accuracies))  # device 0 is unseen
    ]
    summary = {"strategy": strategy, "seed": seed, "task": task, "settings": settings}
    return complete_run(strategy, summary, devices, overrides)


def pairs(groups, against=None, chosen=None):
    made = {label: Selection((chosen or {}).get(label, label), 1) for label in groups}
    return {row.label: row for row in pair_all(groups, made, against)}


def test_every_seen_device_is_compared_with_itself():
    groups = {"fedavg": [make("fedavg", [0.2] * 6)], "fedper": [make("fedper", [0.2 + gain for gain in GAINS])]}
    (row,) = pairs(groups).values()
    assert (row.label, row.reference, row.refused) == ("fedper", "fedavg", None)
    assert row.difference == pytest.approx(0.35)
    assert (row.pairs, row.better, row.worse, row.seeds) == (6, 6, 0, 1)
    assert row.p == row.p_holm == pytest.approx(2 / 2**6)
    low, high = row.interval
    assert 0.2 < low < 0.35 < high < 0.5


def test_smaller_error_is_a_negative_difference_and_a_better_device():
    groups = {
        "fedavg": [make("fedavg", [0.5] * 6, task="regression")],
        "ditto": [make("ditto", [0.5 - gain for gain in GAINS[:5]] + [0.75], task="regression")],
    }
    row = pairs(groups)["ditto"]
    assert row.difference == pytest.approx((0.25 - 1.5) / 6)
    assert row.interval[0] < row.difference < row.interval[1]
    assert (row.better, row.worse) == (5, 1)


def test_devices_are_joined_by_seed():
    """One of them lists seed 1 first; joined by order, gains would differ."""
    base, better = [0.1] * 3 + [0.5] * 3, [0.2] * 3 + [0.6] * 3
    groups = {
        "fedavg": [make("fedavg", base, seed=0), make("fedavg", [0.0] * 6, seed=1), make("fedavg", base, seed=3)],
        "fedper": [make("fedper", [0.3] * 6, seed=1), make("fedper", better, seed=0), make("fedper", base, seed=2)],
    }
    row = pairs(groups)["fedper"]
    assert (row.seeds, row.pairs) == (2, 12)
    assert row.difference == pytest.approx((6 * 0.1 + 6 * 0.3) / 12)
    assert row.interval == pytest.approx((0.1, 0.3))  # runs are drawn, so both may be the same run


def test_few_pairs_have_neither_interval_nor_p():
    groups = {"fedavg": [make("fedavg", [0.2] * 5)], "fedper": [make("fedper", [0.3] * 5)]}
    row = pairs(groups)["fedper"]
    assert row.difference == pytest.approx(0.1)
    assert row.interval is row.p is row.p_holm is None


def test_device_without_a_figure_is_not_a_pair():
    groups = {"fedavg": [make("fedavg", [0.2] * 7)], "fedper": [make("fedper", [0.3] * 6 + [None])]}
    assert pairs(groups)["fedper"].pairs == 6
    nothing = {"fedavg": [make("fedavg", [0.2])], "fedper": [make("fedper", [None])]}
    assert pairs(nothing)["fedper"].refused == "no device has a figure under both"


def test_p_is_adjusted_for_all_rows():
    groups = {name: [make(name, [0.1 + gain for gain in GAINS])] for name in ("local", "fedper", "ditto")}
    groups["fedavg"] = [make("fedavg", [0.1] * 6)]
    rows = pairs(groups)
    assert list(rows) == ["local", "fedper", "ditto"]
    assert [row.p_holm for row in rows.values()] == pytest.approx([3 * 2 / 2**6] * 3)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"settings": {**SETTINGS, "partition": "iid"}}, "partition is iid, not dirichlet alpha=0.3"),
        ({"settings": {**SETTINGS, "data": "mnist"}}, "data is mnist, not digits"),
        ({"settings": {**SETTINGS, "fleet.unseen": "0"}}, "fleet.unseen is 0, not 1"),
        ({"settings": {**SETTINGS, "fleet.evaluated": "5"}}, "fleet.evaluated is 5, not the default"),
        ({"settings": None}, "only one of the two recorded its settings"),
        ({"seed": 1}, "no seed in common with fedavg"),
        ({"examples": 11}, "examples of device 1 with seed 0 is 11, and 10 under the reference"),
        ({"accuracies": [0.5] * 7}, "with seed 0 there are 8 and 7 of them"),
    ],
)
def test_different_devices_are_not_paired(changed, reason):
    accuracies = changed.pop("accuracies", [0.5] * 6)
    groups = {"fedavg": [make("fedavg", [0.5] * 6)], "fedper": [make("fedper", accuracies, **changed)]}
    row = pairs(groups, against="fedavg")["fedper"]
    assert reason in row.refused
    assert (row.pairs, row.difference, row.p_holm) == (0, None, None)


def on(digest, strategy, seed):
    return make(strategy, [0.5] * 6, seed=seed, settings={**SETTINGS, "data.digest": digest} if digest else SETTINGS)


def test_other_data_of_the_same_name_is_not_paired():
    """Runs from Python may draw other data for each seed; older runs recorded no digest."""
    groups = {
        "fedavg": [on("0a", "fedavg", 0), on("0b", "fedavg", 1)],
        "fedper": [on("0b", "fedper", 1), on(None, "fedper", 0)],
        "ditto": [on("0a", "ditto", 0), on("0a", "ditto", 1)],
    }
    found = pairs(groups, against="fedavg")
    assert (found["fedper"].seeds, found["ditto"].seeds) == (2, 0)
    assert found["ditto"].refused == "not the same devices as fedavg: another data set of that name"


@pytest.mark.parametrize("key", ["train.learning_rate", "model", "fleet.cohort", "strategy.mu", "run.rounds"])
def test_runs_with_other_training_settings_are_paired(key):
    other = make("fedper", [0.5] * 6, settings={**SETTINGS, key: "other"})
    assert pairs({"fedavg": [make("fedavg", [0.5] * 6)], "fedper": [other]})["fedper"].pairs == 6


def test_runs_without_settings_are_compared_by_overrides():
    def old(strategy, *overrides):
        return [make(strategy, [0.5] * 6, settings=None, overrides=overrides)]

    groups = {
        "fedavg": old("fedavg", "train.epochs=2"),
        "a": old("a", "partition.alpha=1"),
        "b": old("b", "backend=serial"),
    }
    rows = pairs(groups, against="fedavg")
    assert "partition.alpha is 1, not the default" in rows["a"].refused
    assert rows["b"].pairs == 6


def test_each_configuration_is_compared_on_its_own_data():
    other = {**SETTINGS, "partition": "iid"}
    groups = {
        "fedavg dirichlet": [make("fedavg", [0.5] * 6)],
        "fedavg iid": [make("fedavg", [0.1] * 6, settings=other)],
        "fedper dirichlet": [make("fedper", [0.75] * 6)],
        "fedper iid": [make("fedper", [0.75] * 6, settings=other)],
    }
    rows = pairs(groups)
    assert {label: row.reference for label, row in rows.items()} == {
        "fedper dirichlet": "fedavg dirichlet",
        "fedper iid": "fedavg iid",
    }
    assert [row.difference for row in rows.values()] == pytest.approx([0.25, 0.65])


def test_selected_configuration_is_the_reference():
    groups = {name: [make(name.split()[0], [0.5] * 6)] for name in ("fedavg a", "fedavg b", "local")}
    rows = pairs(groups, chosen={"fedavg a": "fedavg b", "fedavg b": "fedavg b"})
    assert {label: row.reference for label, row in rows.items()} == {"fedavg a": "fedavg b", "local": "fedavg b"}


def test_reference_is_a_strategy_or_a_label():
    groups = {name: [make(name.split()[0], [0.5] * 6)] for name in ("local", "ditto a", "ditto b", "fedavg")}
    assert {row.reference for row in pairs(groups).values()} == {"fedavg"}
    assert {row.reference for row in pairs(groups, "local").values()} == {"local"}
    assert {row.reference for row in pairs(groups, "ditto b").values()} == {"ditto b"}
    del groups["fedavg"]
    assert {row.reference for row in pairs(groups).values()} == {"local"}  # the first
    with pytest.raises(ConfigurationError, match=r"--against: expected one of local, ditto, .*, found 'fedper'"):
        pairs(groups, "fedper")


def test_single_configuration_has_no_pairs():
    assert pairs({"fedavg": [make("fedavg", [0.5] * 6)]}) == {}
    assert pairs({}) == {}
