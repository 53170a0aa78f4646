import pytest
from written_runs import complete_run

from odt_sim.errors import ConfigurationError
from odt_sim.report.selection import select, selected_only

SETTINGS = {"data": "digits", "partition": "dirichlet alpha=0.3", "fleet.devices": "4", "fleet.unseen": "0"}


def make(strategy, validation, test=0.5, *, seed=0, devices=4, task="classification", **settings):
    metric = {"classification": "accuracy", "regression": "mse"}[task]
    figures = None if validation is None else {"devices": devices, "weighted_mean": validation, "mean": 0.123}
    summary = {
        "strategy": strategy,
        "seed": seed,
        "task": task,
        "metrics": {metric: {"weighted_mean": test}},
        "metrics_validation": {metric: figures},
        "settings": SETTINGS | {"strategy": strategy} | {k.replace("__", "."): v for k, v in settings.items()},
    }
    return complete_run("run", summary)


def chosen(groups):
    made = select(groups)
    return [label for label in groups if made[label].label == label]


def test_validation_decides_against_the_test():
    groups = {
        "fedavg lr=.01": [make("fedavg", 0.7, test=0.9, train__learning_rate="0.01")],
        "fedavg lr=.1": [make("fedavg", 0.8, test=0.6, train__learning_rate="0.1")],
        "local": [make("local", 0.1, test=0.1)],
    }
    assert chosen(groups) == ["fedavg lr=.1", "local"]
    assert [select(groups)[label].candidates for label in groups] == [2, 2, 1]
    assert list(selected_only(groups)) == ["fedavg lr=.1", "local"]


def test_smaller_error_is_the_better_one():
    groups = {name: [make("fedavg", mse, task="regression")] for name, mse in [("a", 0.3), ("b", 0.2), ("c", 0.4)]}
    assert chosen(groups) == ["b"]


def test_mean_over_seeds_decides():
    groups = {
        "a": [make("fedavg", 0.9), make("fedavg", 0.5, seed=1)],
        "b": [make("fedavg", 0.8), make("fedavg", 0.7, seed=1)],
    }
    assert chosen(groups) == ["b"]


def test_configuration_with_a_failed_seed_does_not_win():
    groups = {"a": [make("fedavg", 0.9)], "b": [make("fedavg", 0.8), make("fedavg", 0.6, seed=1)]}
    assert chosen(groups) == ["b"]


def test_configuration_that_diverged_on_a_device_does_not_win():
    groups = {"a": [make("fedavg", 0.9, devices=3)], "b": [make("fedavg", 0.8, devices=4)]}
    assert chosen(groups) == ["b"]


def test_each_partition_has_its_own_selection():
    groups = {
        f"fedavg {alpha} {rate}": [make("fedavg", value, partition=f"dirichlet {alpha}", train__learning_rate=rate)]
        for alpha, rate, value in [("0.1", "a", 0.5), ("0.1", "b", 0.6), ("1", "a", 0.9), ("1", "b", 0.8)]
    }
    assert chosen(groups) == ["fedavg 0.1 b", "fedavg 1 a"]


def test_first_of_equals_is_selected():
    assert chosen({name: [make("fedavg", 0.5)] for name in "ab"}) == ["a"]


def test_selection_without_validation_figures_is_refused():
    groups = {name: [make("fedavg", None)] for name in "ab"}
    assert chosen(groups) == []
    with pytest.raises(ConfigurationError, match="none of the 2 configurations of fedavg has validation metrics"):
        selected_only(groups)
    assert chosen({"a": [make("fedavg", None)]}) == ["a"]  # the only candidate


def test_configuration_without_figures_is_not_selected():
    assert chosen({"a": [make("fedavg", None)], "b": [make("fedavg", 0.1)]}) == ["b"]


def test_data_that_depends_on_the_seed_is_one_selection():
    groups = {
        rate: [make("fedavg", 0.5 + float(rate), seed=seed, data__digest=f"0{seed}") for seed in seeds]
        for rate, seeds in {"0.1": (0, 1, 2), "0.4": (1, 2)}.items()
    }
    assert chosen(groups) == ["0.1"]


def test_other_data_of_the_same_name_is_another_selection():
    groups = {digest: [make("fedavg", 0.5, data__digest=digest)] for digest in ("0a", "0b")}
    assert chosen(groups) == ["0a", "0b"]
