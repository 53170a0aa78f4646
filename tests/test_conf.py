"""Every file of conf/ is run for real, one round on few devices, and does what it says."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf
from sklearn.datasets import load_digits

from odt_sim import TrainableModel
from odt_sim.application import composed, launch
from odt_sim.config import build, federated, model
from odt_sim.data.federated import FederatedData
from odt_sim.errors import ConfigurationError
from odt_sim.export.cache import QUIET, default_directory
from odt_sim.report.records import RunFolder

CONF = Path(__file__).parents[1] / "conf"
FILES = {path.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml")}
BASE = {"run.rounds": 1, "model": "softmax", "backend": "serial"}
FEW = {"fleet.devices": 4, "fleet.unseen": 1}
NPZ = {"data": "npz", "data.path": "images.npz", "data.y": "labels"}

MINE = """
import numpy as np

def examples(count):
    return np.full((count, 8, 8, 1), 0.5, np.float32), np.arange(count) % 10
"""
NETWORK = """
import keras

def build(width):
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Dense(width, activation="relu")(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, keras.layers.Dense(10)(hidden))

def normalized():
    layers = [keras.layers.Flatten(), keras.layers.Dense(5), keras.layers.BatchNormalization(), keras.layers.Dense(10)]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers])

def of_texts():
    return keras.Sequential([keras.Input((8,), dtype="int32"), keras.layers.Embedding(80, 4), keras.layers.Flatten(),
                             keras.layers.Dense(80)])
"""

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),  # sqlalchemy, about MLflow
]


@dataclass(frozen=True)
class Run:
    """What a run left in its folder."""

    folder: Path

    @property
    def records(self) -> RunFolder:
        return RunFolder(self.folder)

    @property
    def summary(self) -> Any:
        return self.records.summary()

    @property
    def config(self) -> Any:
        return OmegaConf.load(self.folder / ".hydra" / "config.yaml")

    @property
    def model(self) -> TrainableModel:
        return TrainableModel.load(self.folder / "model.tflite")

    def data(self) -> FederatedData:
        """Makes the data again, and checks that it is as large, device by device, as what the devices had."""
        data = federated(self.config)
        assert [row["train_examples"] for row in self.records.devices()] == data.train_sizes.tolist()
        assert [row["examples"] for row in self.records.devices()] == [len(data.test(d)) for d in range(data.devices)]
        return data


def given(overrides: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in {**BASE, **overrides}.items()]


def ran(**overrides: Any) -> Run:
    outcome = launch(given(overrides))
    assert outcome.failed == 0
    run = Run(outcome.folder)
    assert run.summary["rounds"] == 1
    return run


@pytest.fixture(scope="module")
def pictures() -> Any:
    """`[60, 28, 28]` uint8; their labels are 0..9 in turn."""
    return np.random.default_rng(0).integers(0, 256, (60, 28, 28), np.uint8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory, pictures):
    """A cache with the models that all tests share, and pictures where Keras' MNIST would be."""
    cache = tmp_path_factory.mktemp("cache")
    default_directory().mkdir(parents=True, exist_ok=True)
    (cache / "models").symlink_to(default_directory())
    (cache / "data").mkdir()
    np.savez(cache / "data" / "keras_mnist.npz", x=pictures, y=np.arange(60) % 10)
    return cache


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, softmax, cache, pictures):
    """A working folder with data, a model and code of the user's own."""
    np.savez(tmp_path / "images.npz", x=pictures[:, :8, :8], labels=np.arange(60) % 10, writers=np.arange(60) % 6)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    monkeypatch.setenv("ODT_SIM_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


# --- config.yaml and experiment ----------------------------------------------------------------------------------------

DEFAULTS = {
    "data": "digits", "partition": "dirichlet", "drift": "none", "model": "digits_cnn", "strategy": "fedavg",
    "fleet": "default", "backend": "ray", "tracker": "none", "seed": 0, "run.rounds": 40, "run.evaluate_every": "null",
    "run.resume": "null", "run.storage": "null",
    "split.method": "stratified", "split.validation": 0.2, "split.test": 0.2, "split.gap": 1,
    "train.epochs": 1, "train.learning_rate": 0.1,
}  # fmt: skip
EXPERIMENTS = {"demo": ["local", "fedavg", "fedavg_finetune", "fedper"]}
REPRODUCTIONS = [path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("reproductions/test_*.py")]


def test_the_defaults():
    assert composed([]) == composed([f"{key}={value}" for key, value in DEFAULTS.items()])
    assert ran().config == composed(given({}))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment(name):
    chosen = {"model": "digits_mlp", "+experiment": name}
    outcome = launch(given(chosen))
    assert outcome.failed == 0
    runs = [Run(outcome.folder / str(job)) for job in range(len(EXPERIMENTS[name]))]
    for run, strategy in zip(runs, EXPERIMENTS[name], strict=True):
        assert run.summary["strategy"] == strategy
        assert run.config == composed([*given({"model": "digits_mlp"}), f"strategy={strategy}"])
    assert len(list(outcome.folder.rglob("summary.json"))) == len(runs)


# --- strategy ----------------------------------------------------------------------------------------------------------

MLP = {"model": "digits_mlp"}
GROUPED = {**MLP, "+model.train_groups": "[head,body]"}
NORMALIZED = {"model": "keras", "model.build._target_": "network.normalized"}
STRATEGIES = {
    "apfl": {},
    "ditto": {},
    "fedadagrad": {},
    "fedadam": {},
    "fedamp": {},
    "fedavg": {},
    "fedavg_finetune": {},
    "fedavgm": {},
    "fedbabu": GROUPED,
    "fedbn": NORMALIZED,
    "feddyn": {},
    "fedfomo": {},
    "fedper": MLP,
    "fedprox": {},
    "fedrep": GROUPED,
    "fedyogi": {},
    "ifca": {},
    "interpolation": {},
    "knn_per": {"+model.embed": "true"},
    "lg_fedavg": MLP,
    "local": {},
    "mr_mtl": {},
    "perfedavg": {},
    "pfedme": {},
    "reptile": {},
    "scaffold": {},
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy(name):
    run = ran(strategy=name, **FEW, **STRATEGIES[name])
    assert run.summary["strategy"] == name
    assert [row["strategy"] for row in run.records.rounds()] == [name]


def test_fine_tuning_takes_up_to_five_epochs():
    run = ran(strategy="fedavg_finetune", **FEW, **{"train.learning_rate": 0.01})
    assert max(row["fine_tune_epochs"] for row in run.records.devices()) == 5


# --- model -------------------------------------------------------------------------------------------------------------

MODELS = {
    "character_lstm": {"model.build.length": 8},  # each position costs export time, and no parameters
    "digits_cnn": {},
    "digits_mlp": {},
    "har_cnn": {},
    "keras": {"model.build._target_": "network.build", "+model.build.width": 5},
    "keras_file": {"model.path": "mine.keras"},
    "linear": {},
    "mnist_cnn": {},
    "mobilenet": {},
    "mobilenet_transfer": {"model.build.weights": "mine.weights.h5"},
    "mobilenet_v2": {},
    "resnet8": {},
    "softmax": {},
    "tflite": {"model.path": "softmax.tflite"},
    "transformer_encoder": {},
}
OF_FIVE = 64 * 5 + 5 + 5 * 10 + 10
OTHERWISE = {"keras": ("keras", OF_FIVE), "keras_file": ("keras_file", OF_FIVE), "tflite": ("softmax", 650)}
SAVED = {
    "keras_file": "import network; network.build(5).save('mine.keras')",
    "mobilenet_transfer": "import keras; keras.applications.MobileNet((96, 96, 3), alpha=0.25, include_top=False, "
    "weights=None).save_weights('mine.weights.h5')",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name, folder):
    """It has its file's name, and as many parameters as the file's first line says."""
    if name in SAVED:
        environment = {**os.environ, **QUIET, "PYTHONPATH": str(folder)}
        subprocess.run([sys.executable, "-c", SAVED[name]], check=True, env=environment)
    chosen = {"model": name, **MODELS[name]}
    config = composed(given(chosen))
    write_examples(folder / "fitting.npz", model(config))
    run = ran(**chosen, data="npz", partition="iid", **{"data.path": "fitting.npz"}, **FEW)
    said = OTHERWISE[name] if name in OTHERWISE else (name, parameters_said(name))
    assert (run.model.name, run.model.layout.size) == said
    if name != "tflite":
        assert (run.model.batch_size, run.model.loss) == (config.model.batch_size, config.model.loss)


def write_examples(path: Path, fitted: TrainableModel) -> None:
    """Writes 60 random examples of the shapes that a model takes."""
    random = np.random.default_rng(0)
    shape, tokens = (60, *fitted.x.shape[1:]), fitted.x.dtype == "int32"
    x = random.integers(0, 80, shape, np.int32) if tokens else random.random(shape, np.float32)
    y = np.arange(60 * int(np.prod(fitted.y.shape[1:]))).reshape(60, *fitted.y.shape[1:])
    np.savez(path, x=x, y=y % fitted.classes if fitted.classes else y / np.float32(len(y)))


def parameters_said(name: str) -> int:
    [said] = re.findall(r"([\d,]+) parameters", (CONF / "model" / f"{name}.yaml").read_text().splitlines()[0])
    return int(said.replace(",", ""))


# --- data --------------------------------------------------------------------------------------------------------------

DATA = {
    "digits": {},
    "function": {"data.target": "mine.examples", "+data.count": 60},
    "keras": {"model": "mnist_cnn"},
    "npz": {"data.path": "images.npz", "data.y": "labels"},
}


def inputs(name: str, pictures: Any) -> Any:
    """The known inputs of a data set, without the channel axis."""
    return {
        "digits": lambda: load_digits().images / 16,
        "function": lambda: np.full((60, 8, 8), 0.5),
        "keras": lambda: pictures / 255,
        "npz": lambda: pictures[:, :8, :8] / 255,
    }[name]()


@pytest.mark.parametrize("name", DATA)
def test_data(name, pictures):
    data = ran(data=name, partition="iid", **DATA[name], **FEW).data()
    np.testing.assert_allclose(data.x[..., 0], inputs(name, pictures), atol=1e-6)
    np.testing.assert_array_equal(data.y, load_digits().target if name == "digits" else np.arange(60) % 10)
    if name == "keras":
        assert data.name == "mnist"


TEXTS = {"model": "keras", "model.build._target_": "network.of_texts"}
FLAT = {"model": "softmax", "model.build.input_shape": "[60]"}
DRAWN = (np.random.default_rng([0, 3]).lognormal(4, 2, 3).astype(int) + 50).tolist()
OF_USERS: dict[str, tuple[dict[str, Any], list[int]]] = {  # and how many examples each user has
    "femnist": ({"data.path": "femnist", "model": "softmax", "model.build.input_shape": "[28,28,1]",
                 "model.build.classes": 62}, [5, 4, 3]),
    "pfedme_synthetic": ({**FLAT, "data.users": 3}, [5 * size for size in DRAWN]),
    "school": ({"data.path": "school.npz", "model": "linear", "model.build.input_shape": "[2]"}, [6, 5, 4]),
    "sent140": ({"data.path": "sent140", "data.length": 8, **TEXTS}, [5, 4, 3]),
    "shakespeare": ({"data.path": "shakespeare", **TEXTS}, [5, 4, 3]),
    "synthetic": ({**FLAT, "data.users": 3}, DRAWN),
    "table": ({"data.path": "people.csv", "data.target": "kind", "data.users": "who", "model": "softmax",
               "model.build.input_shape": "[2]", "model.build.classes": 2}, [6, 5, 4]),
    "uci_har": ({"data.path": "har.npz", "model": "har_cnn", "split.method": "block"}, [7, 7, 7]),  # of 9
}  # fmt: skip


def write_data_of_users(folder: Path) -> None:
    """Writes small files of the formats that sources of users' data read."""
    random = np.random.default_rng(0)
    writers = np.repeat([0, 1, 2], [6, 5, 4])
    np.savez(folder / "school.npz", x=random.random((15, 2)), y=random.integers(1, 71, 15), school=writers)
    rows = [
        f"{'abc'[who]},{random.random()},{random.random()},{'yes' if random.random() < 0.5 else 'no'}"
        for who in writers
    ]
    (folder / "people.csv").write_text("\n".join(["who,age,weight,kind", *rows]))
    signals = random.normal(size=(3, 9, 64 * 10)).astype(np.float32)
    windows = np.stack([signals[who, :, at : at + 128] for who in range(3) for at in range(0, 64 * 9, 64)])
    np.savez(folder / "har.npz", x=windows, y=np.arange(27) % 6, subject=np.repeat([1, 2, 3], 9))
    examples = {
        "femnist": ([0.5] * 784, 61),
        "sent140": (["1", "Mon", "NO_QUERY", "ann", "so good!", "training"], 1),
        "shakespeare": ("to be or", " "),
    }
    for name, (x, y) in examples.items():
        (folder / name).mkdir()
        of_users = {f"u{count}": {"x": [x] * count, "y": [y] * count} for count in (5, 4, 3)}
        (folder / name / "data.json").write_text(json.dumps({"users": list(of_users), "user_data": of_users}))


@pytest.mark.parametrize("name", OF_USERS)
def test_data_of_users(name, folder):
    write_data_of_users(folder)
    chosen, sizes = OF_USERS[name]
    fleet = {"partition": "by_user", "fleet.devices": "null", "fleet.unseen": 1}
    run = ran(data=name, **{**fleet, **chosen, "train.learning_rate": 0.01})
    assert run.config.data._target_.endswith(name)
    data = run.data()
    assert sorted(np.diff(data.offsets[:, [0, 3]]).ravel().tolist()) == sorted(sizes)


# --- partition ---------------------------------------------------------------------------------------------------------


def skew(labels: Sequence[Any]) -> float:
    """The total variation distance of a device's mix of classes from the fleet's; the mean over all examples."""
    mixes = np.array([np.bincount(device, minlength=10) for device in labels])
    sizes = mixes.sum(axis=1)
    distances = np.abs(mixes / sizes[:, None] - mixes.sum(axis=0) / sizes.sum()).sum(axis=1) / 2
    return float(distances @ sizes / sizes.sum())


def unevenness(labels: Sequence[Any]) -> float:
    """How many times more examples the largest device has than the median one."""
    sizes = list(map(len, labels))
    return max(sizes) / float(np.median(sizes))


def equal(labels: Sequence[Any]) -> bool:
    sizes = sorted(map(len, labels))
    return sizes[-1] - sizes[0] <= 1 and skew(labels) < 0.15


def skewed(labels: Sequence[Any]) -> bool:
    return skew(labels) > 0.4 and unevenness(labels) > 1.5 and min(map(len, labels)) >= 10


def skewed_in_quantity(labels: Sequence[Any]) -> bool:
    return skew(labels) < 0.15 and unevenness(labels) > 1.5 and min(map(len, labels)) >= 10


def two_classes(labels: Sequence[Any]) -> bool:
    return {len(np.unique(device)) for device in labels} == {2}


def users(labels: Sequence[Any]) -> bool:
    """Example i has the label i mod 10 and the user i mod 6: user u has, twice over, the labels of u's parity."""
    return [sorted(device) for device in labels] == [sorted([*range(user % 2, 10, 2)] * 2) for user in range(6)]


PARTITIONS: dict[str, tuple[dict[str, Any], Callable[[Sequence[Any]], bool]]] = {
    "by_user": ({**NPZ, "data.users": "writers", "fleet.devices": "null", "fleet.unseen": 1}, users),
    "dirichlet": ({}, skewed),
    "iid": ({}, equal),
    "pathological": ({}, two_classes),
    "quantity_skew": ({}, skewed_in_quantity),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition(name):
    """Only it makes its check true; the fleet has 20 devices where the data does not decide."""
    data = ran(partition=name, **PARTITIONS[name][0]).data()
    labels = [data.y[data.indices[start:end]] for start, end in pairwise([*data.offsets[:, 0], len(data.indices)])]
    assert [key for key, (_, check) in PARTITIONS.items() if check(labels)] == [name], (
        skew(labels),
        unevenness(labels),
    )


# --- drift -------------------------------------------------------------------------------------------------------------

DRIFTS: dict[str, dict[str, Any]] = {
    "colour": {"model.build.input_shape": "[8,8,3]"},
    "label_permutation": {},
    "none": {},
    "rotation": {},
}


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift(name, pictures):
    """It is what its name says: nothing else than inputs or labels changes, and the record says which drift it was."""
    run = ran(**NPZ, partition="iid", drift=name, **DRIFTS[name], **FEW)
    data, images = run.data(), pictures[:, :8, :8, np.newaxis] / np.float32(255)
    changed = {
        "colour": data.x.shape == (60, 8, 8, 3) and np.allclose(data.x.sum(axis=3, keepdims=True), images),
        "label_permutation": not np.array_equal(data.y, np.arange(60) % 10),
        "none": np.array_equal(data.x, images) and np.array_equal(data.y, np.arange(60) % 10),
        "rotation": data.x.shape == images.shape and not np.array_equal(data.x, images),
    }
    assert [drift for drift, is_so in changed.items() if is_so] == [name]
    assert (name in run.summary["settings"]["partition"]) == (name != "none")


# --- fleet, backend, tracker -------------------------------------------------------------------------------------------

FLEETS = {"cross_device": (100, 10, 20, 1), "default": (20, None, 4, 1)}
BACKENDS = {
    "ray": ("RayBackend", {"address": "local", "actors": None, "devices_per_actor": "auto"}),
    "serial": ("SerialBackend", {}),
}
TRACKERS = {  # the class, and what only it leaves in the working folder
    "mlflow": ("MLflow", "mlflow.db"),
    "none": ("Tracker", None),
    "tensorboard": ("TensorBoard", "outputs/**/tensorboard/**/events.*"),
    "wandb": ("WandB", "outputs/**/wandb/offline-run-*"),
}


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet(name):
    devices, cohort, unseen, least = FLEETS[name]
    run = ran(fleet=name, partition="iid")
    assert [run.summary[key] for key in ("devices", "cohort", "unseen")] == [devices, cohort, unseen]
    assert [row["devices"] for row in run.records.rounds()] == [cohort or devices - unseen]
    assert run.config.fleet.min_devices == least


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend(name):
    kind, settings = BACKENDS[name]
    config: DictConfig = ran(backend=name, **FEW).config
    backend = build(config.backend, "backend")
    assert type(backend).__name__ == kind
    assert {key: getattr(backend, key) for key in settings} == settings


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker(name, folder):
    chosen = {"tracker": name, **FEW} | ({"tracker.mode": "offline"} if name == "wandb" else {})
    if name == "wandb" and importlib.util.find_spec("wandb") is None:
        with pytest.raises(ConfigurationError, match=r"pip install 'odt_sim\[wandb\]'"):
            launch(given(chosen))
        return
    run = ran(**chosen)
    assert type(build(run.config.tracker, "tracker")).__name__ == TRACKERS[name][0]
    left = [pattern for _, pattern in TRACKERS.values() if pattern and any(folder.glob(pattern))]
    assert left == [pattern for pattern in [TRACKERS[name][1]] if pattern]


# --- all ---------------------------------------------------------------------------------------------------------------

GROUPS = {
    "backend": BACKENDS, "data": {**DATA, **OF_USERS}, "drift": DRIFTS, "experiment": EXPERIMENTS, "fleet": FLEETS,
    "experiment/reproduce": REPRODUCTIONS, "model": MODELS, "partition": PARTITIONS, "strategy": STRATEGIES,
    "tracker": TRACKERS,
}  # fmt: skip


def test_every_file_has_a_case():
    assert {f"{group}/{name}.yaml" for group, cases in GROUPS.items() for name in cases} | {"config.yaml"} == FILES


def test_every_file_opens_with_what_it_is_for():
    for file in FILES:
        assert (CONF / file).read_text().startswith("# "), file
