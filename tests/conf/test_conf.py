"""Runs of one round with each option of conf/."""

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exporter import EXPORTER
from omegaconf import DictConfig
from runs import CONF, FEW, Run, given, ran
from test_conf_data import DATA, OF_USERS
from test_conf_partition import ARRIVALS, DRIFTS, PARTITIONS
from test_conf_tasks import TASKS

from odt_sim import TrainableModel
from odt_sim.cli.commands.run import launch
from odt_sim.cli.hydra.build import check, model
from odt_sim.cli.hydra.components import build
from odt_sim.cli.hydra.options import option_names
from odt_sim.cli.hydra.overrides import composed
from odt_sim.errors import ConfigurationError
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune

FILES = {path.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml")}

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),  # sqlalchemy, about MLflow
]


# --- config.yaml and experiment ---------------------------------------------------------------------------------------

DEFAULTS = {
    "data": "digits", "partition": "dirichlet", "drift": "none", "arrival": "none", "model": "digits_cnn",
    "strategy": "fedavg", "aggregator": "mean",
    "fleet": "default", "backend": "auto", "tracker": "none", "seed": 0, "run.rounds": 40, "run.evaluate_every": "null",
    "run.resume": "null", "run.storage": "null",
    "split.method": "stratified", "split.validation": 0.2, "split.test": 0.2, "split.gap": 1,
    "train.epochs": 1, "train.learning_rate": "null",
}  # fmt: skip
OF_TASKS = ("arm", "digit_numbers", "digit_properties", "next_words", "recommendations", "shapes", "tagged_sentences")
EXPERIMENTS = {"demo": ["local", "fedavg", "fedavg_finetune", "fedper"]}
BENCHMARK = ("digits", "femnist", "school", "shakespeare", "synthetic", "uci_har")  # in tests/benchmark
REPRODUCTIONS = [path.stem.removeprefix("test_") for path in Path(__file__).parents[1].glob("reproductions/test_*.py")]


def test_defaults_of_the_command():
    assert composed([]) == composed([f"{key}={value}" for key, value in DEFAULTS.items()])
    assert ran().config == composed(given({}))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_runs_its_strategies(name):
    chosen = {"model": "digits_mlp", "+experiment": name}
    outcome = launch(given(chosen))
    assert outcome.failed == 0
    runs = [Run(outcome.folder / str(job)) for job in range(len(EXPERIMENTS[name]))]
    for run, strategy in zip(runs, EXPERIMENTS[name], strict=True):
        assert run.summary["strategy"] == strategy
        assert run.config == composed([*given({"model": "digits_mlp"}), f"strategy={strategy}"])
    assert len(list(outcome.folder.rglob("summary.json"))) == len(runs)


def test_experiment_of_phones_is_a_week_of_six_strategies():
    chosen = composed(["+experiment=phones"])
    check(chosen)
    assert (chosen.fleet.profiles, chosen.fleet.schedule.hours, chosen.data.users) == ("phones", 168, 1000)
    assert len(chosen.hydra.sweeper.params.strategy.split(",")) == 6 if "hydra" in chosen else True


# --- strategy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", option_names("strategy"))
def test_strategy_is_built(name):
    """The conformance suite in tests/strategies runs all strategies."""
    assert build(composed([f"strategy={name}"]).strategy, "strategy").name == name


def test_fine_tuning_takes_at_most_five_epochs():
    run = ran(strategy="fedavg_finetune", **FEW, **{"train.learning_rate": 0.01})
    assert max(row["fine_tune_epochs"] for row in run.records.devices()) == 5


# --- aggregator -------------------------------------------------------------------------------------------------------

AGGREGATORS = {
    "differential_privacy": {"max_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5},
    "krum": {"hostile": 0.2, "selected": 1},
    "mean": {},
    "median": {},
    "norm_clipping": {"max_norm": 1.0},
    "trimmed_mean": {"hostile": 0.2},
}


@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregator_is_recorded(name):
    run = ran(aggregator=name, **{"fleet.devices": 6, "fleet.unseen": 1})
    settings = {key: value for key, value in run.summary["settings"].items() if key.startswith("aggregator")}
    expected = {f"aggregator.{key}": str(value) for key, value in AGGREGATORS[name].items()}
    assert settings == {"aggregator": name, **expected}
    assert (run.summary["privacy"] is not None) == (name == "differential_privacy")


# --- attack -----------------------------------------------------------------------------------------------------------

ATTACKS = {
    "backdoor": {"target": 0, "share": 0.5, "size": 2, "value": 1.0, "factor": 1.0},
    "label_poisoning": {"labels": "mirrored", "factor": 1.0},
    "none": {},
    "random_updates": {"deviation": 1.0},
    "scaling": {"factor": -1.0},
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_recorded(name):
    run = ran(attack=name, **{"fleet.devices": 6, "fleet.unseen": 1, "fleet.hostile": 2})
    settings = {key: value for key, value in run.summary["settings"].items() if key.startswith("attack")}
    assert settings == {"attack": name, **{f"attack.{key}": str(value) for key, value in ATTACKS[name].items()}}
    assert ("attack_success" in run.summary) == (name == "backdoor")


# --- model ------------------------------------------------------------------------------------------------------------

MODELS = {
    "character_lstm": {"model.build.length": 8},  # each position costs export time, and no parameters
    "character_window": {},
    "digits_cnn": {},
    "digits_mlp": {},
    "har_cnn": {},
    "arm_mlp": {},
    "ds_cnn": {},
    "keras": {"model.build._target_": "network.build", "+model.build.width": 5},
    "keras_file": {"model.path": "mine.keras"},
    "labels_mlp": {},
    "linear": {},
    "mini_gpt": {},
    "mnist_cnn": {},
    "mobilenet": {},
    "mobilenet_transfer": {"model.build.weights": "mine.weights.h5"},
    "mobilenet_v2": {},
    "next_word": {},
    "recommender": {},
    "resnet8": {},
    "softmax": {},
    "tflite": {"model.path": "softmax.tflite"},
    "transcriber": {},
    "transformer_encoder": {},
    "unet": {},
    "word_tagger": {},
}
OF_FIVE = 64 * 5 + 5 + 5 * 10 + 10
OTHERWISE = {"keras": ("keras", OF_FIVE), "keras_file": ("keras_file", OF_FIVE), "tflite": ("softmax", 650)}
SAVED = {
    "keras_file": "import network; network.build(5).save('mine.keras')",
    "mobilenet_transfer": "import keras; keras.applications.MobileNet((96, 96, 3), alpha=0.25, include_top=False, "
    "weights=None).save_weights('mine.weights.h5')",
}


FAST = ("digits_mlp", "softmax", "tflite")
ELSEWHERE = (
    "mini_gpt",  # tests/strategies/test_training_options.py
    *("ds_cnn", "mobilenet", "mobilenet_v2", "transformer_encoder"),  # tests/export/test_export_zoo.py
    # test_conf_tasks.py, most are there, too
    *("arm_mlp", "labels_mlp", "next_word", "recommender", "transcriber", "unet", "word_tagger"),
)
"""Models that other tests export and train, with their loss and optimizer."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in MODELS if name not in ELSEWHERE],
)
def test_model_has_the_parameters_of_its_summary(name, folder):
    if name in SAVED:
        (folder / "saving.py").write_text(SAVED[name])
        EXPORTER.program(folder / "saving.py")
    chosen = {"model": name, **MODELS[name]}
    config = composed(given(chosen))
    write_examples(folder / "fitting.npz", model(config))
    run = ran(**chosen, data="npz", partition="iid", **{"data.path": "fitting.npz"}, **FEW)
    said = OTHERWISE[name] if name in OTHERWISE else (name, parameters_said(name))
    assert (run.model.name, run.model.layout.size) == said
    if name != "tflite":
        assert (run.model.batch_size, run.model.loss) == (config.model.batch_size, config.model.loss)


def write_examples(path: Path, fitted: TrainableModel) -> None:
    """Write 60 random examples in the shapes that a model requires."""
    random = np.random.default_rng(0)
    shape, tokens = (60, *fitted.x.shape[1:]), fitted.x.dtype == "int32"
    x = random.integers(0, 41, shape, np.int32) if tokens else random.random(shape, np.float32)
    y = np.arange(60 * int(np.prod(fitted.y.shape[1:]))).reshape(60, *fitted.y.shape[1:])
    np.savez(path, x=x, y=y % fitted.classes if fitted.classes else y / np.float32(len(y)))


def parameters_said(name: str) -> int:
    [said] = re.findall(r"([\d,]+) parameters", (CONF / "model" / f"{name}.yaml").read_text().splitlines()[0])
    return int(said.replace(",", ""))


# --- fleet, backend, tracker ------------------------------------------------------------------------------------------

FLEETS = {"cross_device": (100, 10, 20, 1), "default": (20, None, 4, 1)}
BACKENDS = {
    "auto": ("AutoBackend", {}),
    "phones": ("PhonesBackend", {"phones": None, "host": "0.0.0.0", "port": 8765, "examples": "slices"}),
    "ray": ("RayBackend", {"address": "local", "actors": None, "devices_per_actor": "auto"}),
    "serial": ("SerialBackend", {}),
    "processes": ("ProcessesBackend", {"processes": len(os.sched_getaffinity(0))}),
}
TRACKERS = {  # the class, and the output in the working folder that only it produces
    "mlflow": ("MLflow", "mlflow.db"),
    "none": ("Tracker", None),
    "tensorboard": ("TensorBoard", "outputs/**/tensorboard/**/events.*"),
    "wandb": ("WandB", "outputs/**/wandb/offline-run-*"),
}


@pytest.mark.parametrize("name", FLEETS)
def test_fleet_has_its_sizes(name):
    devices, cohort, unseen, least = FLEETS[name]
    run = ran(fleet=name, partition="iid")
    assert [run.summary[key] for key in ("devices", "cohort", "unseen")] == [devices, cohort, unseen]
    assert [row["devices"] for row in run.records.rounds()] == [cohort or devices - unseen]
    assert run.config.fleet.min_devices == least


@pytest.mark.parametrize("name", ["auto", pytest.param("ray", marks=pytest.mark.slow), "serial", "processes"])
def test_backend_is_built(name):
    kind, settings = BACKENDS[name]
    config: DictConfig = ran(backend=name, **FEW).config
    check_backend(config, kind, settings)


def test_backend_of_phones_is_built():
    check_backend(composed(["backend=phones"]), *BACKENDS["phones"])


def check_backend(config: DictConfig, kind: str, settings: dict[str, Any]) -> None:
    backend = build(config.backend, "backend")
    assert type(backend).__name__ == kind
    assert {key: getattr(backend, key) for key in settings} == settings


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TRACKERS if name != "mlflow"])  # tests/trackers/test_artifacts.py
def test_tracker_leaves_its_files(name, folder):
    chosen = {"tracker": name, **FEW} | ({"tracker.mode": "offline"} if name == "wandb" else {})
    if name == "wandb" and importlib.util.find_spec("wandb") is None:
        with pytest.raises(ConfigurationError, match=r"pip install 'odt_sim\[wandb\]'"):
            launch(given(chosen))
        return
    run = ran(**chosen)
    assert type(build(run.config.tracker, "tracker")).__name__ == TRACKERS[name][0]
    left = [pattern for _, pattern in TRACKERS.values() if pattern and any(folder.glob(pattern))]
    assert left == [pattern for pattern in [TRACKERS[name][1]] if pattern]


# --- all --------------------------------------------------------------------------------------------------------------

GROUPS = {
    "aggregator": AGGREGATORS, "arrival": ARRIVALS, "attack": ATTACKS,
    "backend": BACKENDS, "data": (*DATA, *OF_USERS, "fashion_mnist", "cifar10", *OF_TASKS),
    "drift": DRIFTS,
    "experiment": (*EXPERIMENTS, *TASKS, "phones"), "fleet": FLEETS,
    "experiment/reproduce": (*REPRODUCTIONS, "pfedme_synthetic"),
    "experiment/benchmark": BENCHMARK, "model": MODELS,
    "experiment/reproduce/fedprox_synthetic": ("fedprox",), "experiment/reproduce/uci_har": ("ditto",),
    "partition": (*PARTITIONS, "flower"), "strategy": option_names("strategy"), "tracker": TRACKERS,
}  # fmt: skip


def test_every_option_has_a_case():
    assert {f"{group}/{name}.yaml" for group, cases in GROUPS.items() for name in cases} | {"config.yaml"} == FILES


def test_every_option_begins_with_a_summary():
    for file in FILES:
        assert (CONF / file).read_text().startswith("# "), file


@pytest.mark.parametrize("layers", ["all", "head", "chosen"])
def test_exported_model_has_a_step_of_the_head_if_it_is_fine_tuned_alone(layers: str) -> None:
    """Without it, the body would normalize by the statistics of a batch, unlike in inference."""
    found = model(composed(given({"model": "digits_mlp"})), strategy=FedAvgFineTune(layers=layers))
    assert ("train_head" in found.capabilities) == (layers != "all")
