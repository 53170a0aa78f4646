"""The workload shared by benchmarks: shipped models, and fleets of devices with given or random examples."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim import TrainableModel
from odt_sim.cli.hydra.build import model_file
from odt_sim.cli.hydra.overrides import composed
from odt_sim.data.devices.federated import FederatedData


def shipped_file(name: str, **changed: Any) -> Path:
    """Return the `.tflite` file of a model in `conf/model`, exported at its first use and cached as in a run.

    Args:
        name: Name of the model.
        changed: Settings that replace or extend those of the YAML file, such as `gradient_offset=True`.
    """
    config = composed([f"model={name}"])
    config.model = {**config.model, **changed}
    return model_file(config)


def shipped_model(name: str) -> TrainableModel:
    """Return a model in `conf/model`."""
    return TrainableModel.load(shipped_file(name))


def fleet_of(x: NDArray[np.float32], y: NDArray[np.int32], devices: int) -> FederatedData:
    """Return a fleet of devices that train on equally many consecutive examples, and test on their first one.

    Args:
        x: `[devices * examples, ...]`.
        y: `[devices * examples]`.
        devices: Number of devices.
    """
    return fleet_from(x, y, np.arange(devices + 1) * (len(x) // devices), 10)


def fleet_from(x: NDArray[Any], y: NDArray[Any], starts: NDArray[np.int64], classes: int) -> FederatedData:
    """Return a fleet of devices that train on consecutive examples, and test on their first one.

    Args:
        x: `[examples, ...]`.
        y: `[examples, ...]`.
        starts: `[devices + 1]`, the start of each device's examples, and the end of the last device's.
        classes: The number of classes.
    """
    own = [np.arange(start, end) for start, end in itertools.pairwise(starts)]
    indices = np.concatenate([np.append(each, each[0]) for each in own])
    first = starts[:-1] + np.arange(len(own))  # each preceding device has an additional index
    last = starts[1:] + np.arange(len(own))
    return FederatedData("benchmark", x, y, classes, indices, np.stack([first, last, last, last + 1], axis=1))


def random_images(examples: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return `[examples, 28, 28, 1]` images and labels that a model can learn."""
    generator = np.random.default_rng(0)
    templates = generator.normal(size=(10, 28, 28, 1)).astype(np.float32)
    y = generator.integers(0, 10, examples).astype(np.int32)
    return 0.5 * templates[y] + generator.standard_normal((examples, 28, 28, 1), np.float32), y
