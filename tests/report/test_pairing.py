from dataclasses import replace

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
    assert (row.unit, row.units) == ("devices", 6)
    error = (0.035 / 6) ** 0.5  # the sample variance of the gains is 0.035
    assert row.interval == pytest.approx((0.35 - 2.570582 * error, 0.35 + 2.570582 * error), rel=1e-6)
    assert row.p == row.p_holm == pytest.approx(0.005934, rel=1e-3)


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
    """One of the two lists seed 1 first; if joined by order, gains would differ."""
    base, better = [0.1] * 3 + [0.5] * 3, [0.2] * 3 + [0.6] * 3
    groups = {
        "fedavg": [make("fedavg", base, seed=0), make("fedavg", [0.0] * 6, seed=1), make("fedavg", base, seed=3)],
        "fedper": [make("fedper", [0.3] * 6, seed=1), make("fedper", better, seed=0), make("fedper", base, seed=2)],
    }
    row = pairs(groups)["fedper"]
    assert (row.seeds, row.pairs) == (2, 12)
    assert row.difference == pytest.approx((6 * 0.1 + 6 * 0.3) / 12)
    assert (row.unit, row.units, row.interval, row.p) == ("seeds", 2, None, None)  # other devices with every seed


def of_users(strategy, accuracies, seed, digest="0a"):
    """Return a run in which device 1 is user 1 under seed 0, and the last user under other seeds."""
    numbers = range(1, len(accuracies) + 1)
    devices = [
        {"device": i, "seen": True, "user": f"user {user}", "train_examples": 40, "accuracy": accuracies[user - 1]}
        for i, user in enumerate(numbers if seed == 0 else reversed(numbers), 1)
    ]
    settings = {**SETTINGS, "data.digest": digest}
    return complete_run(
        strategy, {"strategy": strategy, "seed": seed, "task": "classification", "settings": settings}, devices
    )


def test_people_who_return_are_averaged_over_seeds():
    base = [0.3] * 6
    gained = [[0.3 + gain + 0.01 * (2 * seed - 1) for gain in GAINS] for seed in (0, 1)]
    groups = {
        "fedavg": [of_users("fedavg", base, 0), of_users("fedavg", base, 1)],
        "fedper": [of_users("fedper", gained[0], 0), of_users("fedper", gained[1], 1)],
    }
    row = pairs(groups)["fedper"]
    assert (row.unit, row.units, row.pairs, row.better, row.worse, row.seeds) == ("people", 6, 6, 6, 0, 2)
    assert row.difference == pytest.approx(0.35)
    error = (0.035 / 6) ** 0.5  # as with one seed: the second one has no new people
    assert row.interval == pytest.approx((0.35 - 2.570582 * error, 0.35 + 2.570582 * error), rel=1e-6)


def test_fleet_that_was_built_once_has_the_same_people():
    def run(strategy, accuracies, seed, split):
        made = make(strategy, accuracies, seed=seed)
        return replace(made, summary=replace(made.summary, split_digest=split))

    base, better = [0.3] * 6, [0.3 + gain for gain in GAINS]
    for splits, unit in ((("0a", "0a", "0a"), "people"), (("0a", "0b", "0c"), "seeds"), ((None, None, None), "seeds")):
        groups = {
            name: [run(name, values, seed, split) for seed, split in enumerate(splits)]
            for name, values in (("fedavg", base), ("fedper", better))
        }
        assert pairs(groups)["fedper"].unit == unit


def test_users_of_data_that_each_seed_draws_anew_are_other_people():
    base, better = [0.3] * 6, [0.3 + gain for gain in GAINS]
    groups = {
        name: [of_users(name, values, seed, digest=f"{seed}a") for seed in (0, 1, 2)]
        for name, values in (("fedavg", base), ("fedper", better))
    }
    assert pairs(groups, "fedavg")["fedper"].unit == "seeds"


def test_few_pairs_have_neither_interval_nor_p():
    groups = {"fedavg": [make("fedavg", [0.2] * 5)], "fedper": [make("fedper", [0.3] * 5)]}
    row = pairs(groups)["fedper"]
    assert row.difference == pytest.approx(0.1)
    assert row.interval is row.p is row.p_holm is None


def test_device_without_a_figure_is_not_a_pair():
    groups = {"fedavg": [make("fedavg", [0.2] * 7)], "fedper": [make("fedper", [0.3] * 6 + [None])]}
    assert pairs(groups)["fedper"].pairs == 6
    nothing = {"fedavg": [make("fedavg", [0.2])], "fedper": [make("fedper", [None])]}
    assert pairs(nothing)["fedper"].refused == "no device has the metric in both"


def test_p_is_adjusted_for_all_rows():
    groups = {name: [make(name, [0.1 + gain for gain in GAINS])] for name in ("local", "fedper", "ditto")}
    groups["fedavg"] = [make("fedavg", [0.1] * 6)]
    rows = pairs(groups)
    assert list(rows) == ["local", "fedper", "ditto"]
    assert [row.p_holm for row in rows.values()] == pytest.approx([3 * row.p for row in rows.values()])
    assert rows["local"].p == pytest.approx(0.005934, rel=1e-3)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"settings": {**SETTINGS, "partition": "iid"}}, "partition is iid, not dirichlet alpha=0.3"),
        ({"settings": {**SETTINGS, "data": "mnist"}}, "data is mnist, not digits"),
        ({"settings": {**SETTINGS, "fleet.unseen": "0"}}, "fleet.unseen is 0, not 1"),
        ({"settings": {**SETTINGS, "fleet.evaluated": "5"}}, "fleet.evaluated is 5, not the default"),
        ({"seed": 1}, "no seed in common with fedavg"),
        ({"examples": 11}, "examples of device 1 with seed 0 is 11, but 10 under the reference"),
        ({"accuracies": [0.5] * 7}, "with seed 0 there are 8 and 7 devices"),
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
    assert found["ditto"].refused == "not the same devices as fedavg: a different data set of the same name"


@pytest.mark.parametrize("key", ["train.learning_rate", "model", "fleet.cohort", "strategy.mu", "run.rounds"])
def test_runs_with_other_training_settings_are_paired(key):
    other = make("fedper", [0.5] * 6, settings={**SETTINGS, key: "other"})
    assert pairs({"fedavg": [make("fedavg", [0.5] * 6)], "fedper": [other]})["fedper"].pairs == 6


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
    with pytest.raises(ConfigurationError, match=r"^against: expected one of local, ditto, .*, found 'fedper'"):
        pairs(groups, "fedper")


def test_single_configuration_has_no_pairs():
    assert pairs({"fedavg": [make("fedavg", [0.5] * 6)]}) == {}
    assert pairs({}) == {}
