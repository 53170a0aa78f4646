from dataclasses import replace

import pytest
from written_runs import complete_run

from odt_sim.report.grouping import group_runs
from odt_sim.report.run_settings import data_key

SETTINGS = {
    "strategy": "fedavg",
    "model": "digits_cnn 0123456789ab",
    "data": "digits",
    "partition": "dirichlet alpha=0.3 validation=0.2 test=0.2",
    "fleet.devices": "20",
    "fleet.cohort": "None",
    "train.epochs": "1",
    "train.learning_rate": "0.1",
    "run.rounds": "40",
}
CONFIG = {
    "model": {"name": "digits_cnn", "seed": 0},
    "partition": {"alpha": 0.3},
    "train": {"epochs": 1, "learning_rate": 0.1},
    "run": {"rounds": 40, "storage": None},
}


def python(strategy="fedavg", seed=0, path="run", **changed):
    """Return a run from Python: it has settings and no overrides."""
    settings = {**SETTINGS, "strategy": strategy, **{key.replace("__", "."): value for key, value in changed.items()}}
    return complete_run(path, {"strategy": strategy, "seed": seed, "settings": settings})


def command(*overrides, strategy="fedavg", seed=0, path="run", config=CONFIG, **changed):
    """Return a run of the command, with a known configuration."""
    summary = python(strategy, seed, **changed).summary
    choices = {"backend": "ray", "model": "digits_cnn"}
    choices |= dict(override.split("=", 1) for override in overrides if "." not in override.split("=")[0])
    return complete_run(path, summary, (), overrides, config, choices)


def seeds(runs):
    return {label: [run.summary["seed"] for run in group] for label, group in group_runs(runs).items()}


def test_runs_from_python_are_separated_by_settings():
    runs = [python(seed=seed, run__rounds=rounds) for rounds in ("2", "5") for seed in (0, 1)]
    assert seeds(runs) == {"fedavg run.rounds=2": [0, 1], "fedavg run.rounds=5": [0, 1]}


def test_runs_of_changed_code_are_separated():
    def mine(seed, strategy="Mine", code="a1", version="3.11"):
        return replace(python(strategy, seed), code={"python": version, "strategy": code})

    assert seeds([mine(0), mine(1), python()]) == {"Mine": [0, 1], "fedavg": [0]}
    rows = {"Mine strategy.code=a1": [0], "Mine strategy.code=b2": [1], "Yours": [0], "fedavg": [0]}
    assert seeds([mine(0), mine(1, code="b2"), mine(0, "Yours"), python()]) == rows
    elsewhere = mine(1, code="c3", version="3.12")  # the same code has another digest there
    assert seeds([mine(0), elsewhere]) == {"Mine": [0, 1]}


def test_differing_settings_make_rows():
    runs = [python(train__learning_rate="0.1"), python(seed=1, train__learning_rate="0.5")]
    assert seeds(runs) == {"fedavg train.learning_rate=0.1": [0], "fedavg train.learning_rate=0.5": [1]}


def test_resumed_run_is_labelled_by_its_final_rounds():
    other = {**CONFIG, "run": {"rounds": 4}}
    runs = [command("run.rounds=4", config=other, run__rounds=rounds) for rounds in ("6", "4")]
    assert list(seeds(runs)) == ["fedavg run.rounds=6", "fedavg run.rounds=4"]


def test_target_is_not_part_of_a_configuration():
    runs = [command("run.target=0.5"), command("run.target=0.6", seed=1)]
    assert seeds(runs) == {"fedavg": [0, 1]}


def test_settings_that_differ_between_strategies_are_labelled():
    runs = [python("fedavg", run__rounds="2"), python("local", run__rounds="5")]
    assert list(seeds(runs)) == ["fedavg run.rounds=2", "local run.rounds=5"]


def test_partitions_are_labelled_by_their_settings():
    runs = [python(partition=f"dirichlet alpha={alpha} validation=0.2 test=0.2") for alpha in ("0.1", "1.0")]
    assert list(seeds(runs)) == ["fedavg partition.alpha=0.1", "fedavg partition.alpha=1.0"]
    other = python(partition="pathological classes=[2, 3] validation=0.2 test=0.2")
    assert list(seeds([runs[0], other])) == ["fedavg partition=dirichlet", "fedavg partition=pathological"]


def test_setting_of_a_partition_is_not_hidden_by_one_of_that_name_of_its_drift():
    runs = [
        python(seed=seed, partition=f"mine alpha={alpha} drift=mine alpha=0.5") for seed, alpha in enumerate((1, 2))
    ]
    assert seeds(runs) == {"fedavg partition.alpha=1,0.5": [0], "fedavg partition.alpha=2,0.5": [1]}


def test_models_are_labelled_by_name_and_content():
    runs = [python(), python(model="digits_mlp 0123456789ab"), python(model="digits_cnn ba9876543210")]
    assert list(seeds(runs)) == [
        "fedavg model=digits_cnn model.fingerprint=0123456789ab",
        "fedavg model=digits_mlp model.fingerprint=0123456789ab",
        "fedavg model=digits_cnn model.fingerprint=ba9876543210",
    ]


def test_file_that_a_strategy_needs_of_a_model_is_no_label():
    files = {"fedavg": "digits_mlp 0123456789ab", "lora": "digits_mlp ba9876543210"}
    runs = [command("model=digits_mlp", strategy=strategy, model=file) for strategy, file in files.items()]
    assert list(seeds(runs)) == ["fedavg", "lora"]


def test_settings_of_a_strategy_are_compared_within_it():
    finetune = [python("fedavg_finetune", strategy__max_epochs=epochs) for epochs in ("3", "5")]
    assert list(seeds([python(), finetune[0]])) == ["fedavg", "fedavg_finetune"]
    labels = [f"fedavg_finetune strategy.max_epochs={epochs}" for epochs in (3, 5)]
    assert list(seeds([python(), *finetune])) == ["fedavg", *labels]


@pytest.mark.parametrize(
    "override",
    [
        "train.epochs=1",
        "train.learning_rate=0.10",
        "run.storage=elsewhere",
        "run.resume=earlier",
        "run.evaluate_every=5",
        "model.train_groups=[head]",
        "model.gradient_offset=true",
        "hydra.run.dir=there",
        "hydra/launcher=ray",
        "backend=serial",
    ],
)
def test_override_without_effect_neither_splits_nor_labels(override):
    assert seeds([command(), command(override, seed=1)]) == {"fedavg": [0, 1]}


def test_settings_do_not_repeat_differing_overrides():
    other = {**CONFIG, "train": {"epochs": 5, "learning_rate": 0.1}}
    runs = [command("train.epochs=1"), command("train.epochs=5", config=other, train__epochs="5")]
    assert list(seeds(runs)) == ["fedavg train.epochs=1", "fedavg train.epochs=5"]
    runs = [command(), command("model=digits_mlp", model="digits_mlp ba9876543210")]
    assert list(seeds(runs)) == ["fedavg", "fedavg model=digits_mlp"]


def test_model_that_depends_on_the_seed_does_not_split_a_configuration():
    config = {**CONFIG, "model": {"name": "digits_cnn", "build": {"dense": [64]}, "seed": "${seed}"}}
    wide = {**CONFIG, "model": {**config["model"], "build": {"dense": [128]}}}
    runs = [
        command(
            "model.seed=${seed}", seed=s, config=config, model=f"digits_cnn {s}", fleet__profiles__calibration=f"c{s}"
        )
        for s in (0, 1)
    ]
    assert seeds(runs) == {"fedavg": [0, 1]}
    overrides = ["model.seed=${seed}", "model.build.dense=[128]"]
    other = command(*overrides, seed=2, config=wide, model="digits_cnn 2")
    assert seeds([*runs, other]) == {"fedavg": [0, 1], "fedavg model.build.dense=[128]": [2]}


def test_repeated_seed_is_labelled_by_the_backend():
    runs = [command(f"backend={name}", seed=seed) for name in ("ray", "serial") for seed in (0, 1)]
    assert seeds(runs) == {"fedavg backend=ray": [0, 1], "fedavg backend=serial": [0, 1]}


def test_identical_runs_are_labelled_by_their_folders():
    runs = [python(path="/runs/first"), python(path="/runs/second"), python("local", path="/runs/third")]
    assert seeds(runs) == {"fedavg (first)": [0], "fedavg (second)": [0], "local": [0]}
    written_out = [command(path="/runs/first"), command("train.epochs=1", path="/runs/second")]
    assert list(seeds(written_out)) == ["fedavg (first)", "fedavg (second)"]


def test_no_run_is_lost_or_counted_twice():
    runs = [
        python(strategy, seed, f"/runs/{number}/{strategy}{seed}{rounds}", run__rounds=rounds)
        for number in range(2)
        for strategy in ("local", "fedavg")
        for seed in (0, 1)
        for rounds in ("2", "5")
    ]
    grouped = [run.path for group in group_runs(runs).values() for run in group]
    assert sorted(grouped) == sorted(run.path for run in runs)


def from_file(path, seed, digest):
    config = {**CONFIG, "data": {"_target_": "odt_sim.data.sources.builtin.npz", "path": path}}
    return command(f"data.path={path}", seed=seed, config=config, data__digest=digest)


def drawn(noise, seed):
    config = {**CONFIG, "data": {"_target_": "mine.draw", "noise": noise, "seed": "${seed}"}}
    return command(seed=seed, config=config, data__digest=f"{noise}{seed}")


def test_data_sets_of_one_name_differ_by_content():
    runs = [from_file("a/d.npz", 0, "0a"), from_file("b/d.npz", 1, "0b"), from_file("copy/d.npz", 2, "0a")]
    assert sorted(seeds(runs).values()) == [[0, 2], [1]]


def test_data_that_depends_on_the_seed_is_one_configuration():
    runs = [drawn(noise, seed) for noise in (1, 2) for seed in (0, 1)]
    assert seeds(runs) == {"fedavg data.noise=1": [0, 1], "fedavg data.noise=2": [0, 1]}
    assert data_key(runs[0]) == data_key(runs[1]) != data_key(runs[2])


def test_data_from_python_may_depend_on_the_seed():
    assert seeds([python(seed=seed, data__digest=f"0{seed}") for seed in (0, 1)]) == {"fedavg": [0, 1]}
