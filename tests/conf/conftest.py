"""A working folder with a user's data, model and code."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from odt_sim.export.cache import default_directory

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
"""


@pytest.fixture(scope="session")
def shipped():
    """Return a function that reads the options of a group as plain values by name."""
    conf = Path(__file__).parents[2] / "conf"
    return lambda group: {
        path.stem: OmegaConf.to_container(OmegaConf.load(path)) for path in (conf / group).glob("*.yaml")
    }


@pytest.fixture(scope="session")
def pictures() -> Any:
    """Images `[60, 28, 28]` uint8; the labels cycle through 0..9."""
    return np.random.default_rng(0).integers(0, 256, (60, 28, 28), np.uint8)


@pytest.fixture(scope="session")
def cache(tmp_path_factory, pictures):
    """A cache with the shared models, and `pictures` instead of Keras's MNIST."""
    cache = tmp_path_factory.mktemp("cache")
    default_directory().mkdir(parents=True, exist_ok=True)
    (cache / "models").symlink_to(default_directory())
    (cache / "data").mkdir()
    np.savez(cache / "data" / "keras_mnist.npz", x=pictures, y=np.arange(60) % 10)
    return cache


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, softmax, cache, pictures):
    """A working folder with a user's data, model and code."""
    np.savez(tmp_path / "images.npz", x=pictures[:, :8, :8], labels=np.arange(60) % 10, writers=np.arange(60) % 6)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "softmax.tflite").write_bytes(softmax.content)
    monkeypatch.setenv("ODT_SIM_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("mine", "network"):
        sys.modules.pop(name, None)
