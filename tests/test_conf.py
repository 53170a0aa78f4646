"""Every file of conf/ is composed and run for real, one round on few devices."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from odt_sim.application import launch
from odt_sim.errors import ConfigurationError

CONF = Path(__file__).parents[1] / "conf"
FILES = sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml"))
BASE = {"run.rounds": 1, "model": "softmax", "backend": "serial"}
FEW = {"fleet.devices": 4, "fleet.unseen": 1}

CASES = {
    "config.yaml": {},
    "backend/ray.yaml": {"backend": "ray", **FEW},
    "backend/serial.yaml": {"backend": "serial", **FEW},
    "data/digits.yaml": {"data": "digits", **FEW},
    "data/function.yaml": {"data": "function", "data.target": "mine.examples", "+data.count": 60, **FEW},
    "data/keras.yaml": {"data": "keras", "data.name": "mnist", "model": "mnist_cnn", "partition": "iid", **FEW},
    "data/npz.yaml": {"data": "npz", "data.path": "images.npz", "data.y": "labels", **FEW},
    "experiment/demo.yaml": {"+experiment": "demo", "model": "digits_mlp", **FEW},
    "fleet/cross_device.yaml": {"fleet": "cross_device", "partition": "iid"},
    "fleet/default.yaml": {"fleet": "default"},
    "model/digits_cnn.yaml": {"model": "digits_cnn", **FEW},
    "model/digits_mlp.yaml": {"model": "digits_mlp", **FEW},
    "model/keras.yaml": {"model": "keras", "model.build._target_": "network.build", "+model.build.width": 5, **FEW},
    "model/mnist_cnn.yaml": {"model": "mnist_cnn", "data": "keras", "partition": "iid", **FEW},
    "model/softmax.yaml": {"model": "softmax", **FEW},
    "model/tflite.yaml": {"model": "tflite", "model.path": "softmax.tflite", **FEW},
    "partition/by_user.yaml": {
        "partition": "by_user",
        "data": "npz",
        "data.path": "images.npz",
        "data.y": "labels",
        "data.users": "writers",
        "fleet.devices": "null",
    },
    "partition/dirichlet.yaml": {"partition": "dirichlet", **FEW},
    "partition/iid.yaml": {"partition": "iid", **FEW},
    "partition/pathological.yaml": {"partition": "pathological", "partition.classes_per_device": 3, **FEW},
    "partition/quantity_skew.yaml": {"partition": "quantity_skew", **FEW},
    "strategy/fedavg.yaml": {"strategy": "fedavg", **FEW},
    "strategy/fedavg_finetune.yaml": {"strategy": "fedavg_finetune", **FEW},
    "strategy/fedper.yaml": {"strategy": "fedper", "model": "digits_mlp", **FEW},
    "strategy/local.yaml": {"strategy": "local", **FEW},
    "tracker/mlflow.yaml": {"tracker": "mlflow", **FEW},
    "tracker/none.yaml": {"tracker": "none", **FEW},
    "tracker/tensorboard.yaml": {"tracker": "tensorboard", **FEW},
    "tracker/wandb.yaml": {"tracker": "wandb", "tracker.mode": "offline", **FEW},
}
RUNS = {"experiment/demo.yaml": ["local", "fedavg", "fedavg_finetune", "fedper"]}
DEVICES = {"config.yaml": 20, "fleet/default.yaml": 20, "fleet/cross_device.yaml": 100, "partition/by_user.yaml": 6}

MINE = """
import numpy as np

def examples(count):
    random = np.random.default_rng(0)
    return random.random((count, 8, 8, 1), np.float32), np.arange(count) % 10
"""
NETWORK = """
import keras

def build(width):
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Dense(width, activation="relu")(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, keras.layers.Dense(10)(hidden))
"""

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),  # sqlalchemy, about MLflow
]


@pytest.fixture
def folder(tmp_path, monkeypatch, softmax):
    """A working folder with data, a model and code of the user's own."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % 10
    images = random.integers(0, 256, (60, 8, 8), np.uint8)
    np.savez(tmp_path / "images.npz", x=images, labels=labels, writers=np.arange(60) % 6)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def cache(tmp_path_factory, configured):
    """A cache that holds the configured models, exported once for all tests, and pictures where Keras' MNIST would be."""
    cache = tmp_path_factory.mktemp("cache")
    (cache / "models").mkdir()
    for name in ("digits_cnn", "digits_mlp", "mnist_cnn", "softmax"):
        path = Path(configured(name).where)
        (cache / "models" / path.name).symlink_to(path)
    (cache / "data").mkdir()
    pictures = np.random.default_rng(0).integers(0, 256, (60, 28, 28), np.uint8)
    np.savez(cache / "data" / "keras_mnist.npz", x=pictures, y=np.arange(60) % 10)
    return cache


def test_every_file_has_a_case():
    assert sorted(CASES) == FILES


@pytest.mark.parametrize("file", FILES)
def test_a_file_runs(file, folder, cache, monkeypatch):
    monkeypatch.setenv("ODT_SIM_CACHE", str(cache))
    overrides = [f"{key}={value}" for key, value in {**BASE, **CASES[file]}.items()]
    if file == "tracker/wandb.yaml" and importlib.util.find_spec("wandb") is None:
        with pytest.raises(ConfigurationError, match=r"pip install 'odt_sim\[wandb\]'"):
            launch(overrides)
        return
    outcome = launch(overrides)
    assert outcome.failed == 0
    summaries = [json.loads(path.read_text()) for path in sorted(folder.rglob("summary.json"))]
    assert [summary["strategy"] for summary in summaries] == RUNS.get(file, [summaries[0]["strategy"]])
    for summary in summaries:
        assert summary["rounds"] == 1
        assert summary["devices"] == DEVICES.get(file, 4)
        assert 0 <= summary["metrics"]["accuracy"]["mean"] <= 1


def test_every_file_opens_with_what_it_is_for():
    for file in FILES:
        assert (CONF / file).read_text().startswith("# "), file
