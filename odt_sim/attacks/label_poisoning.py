"""Poisoned labels: hostile devices train on wrong labels.

Papers: Fang et al. 2020, Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, section 5.1 (`mirrored`: of C
classes, y becomes C - 1 - y); attack A1 of Li et al. 2021, Ditto (`random`: uniform labels).
Rule: a hostile device trains on wrong labels, the same in each round, and sends `factor` times its update; with a large
factor, this is attack A3 of Ditto, model replacement. Its validation examples keep their labels.
Hyper-parameters: `labels`, default `mirrored`; `factor`, any number, default 1, see `scaling`.
"""

from typing import Literal

import numpy as np

from odt_sim.attacks.scaling import Scaling
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.random import generator_for
from odt_sim.errors import ConfigurationError
from odt_sim.hyperparameters import choice
from odt_sim.model.trainable import TrainableModel

Labels = Literal["mirrored", "random"]


class LabelPoisoning(Scaling):
    """Attack by training on wrong labels.

    Attributes:
        labels: The wrong labels: `mirrored` for C - 1 - y, `random` for uniform ones.
    """

    labels: Labels = choice("mirrored", "random")
    factor = 1.0

    def check(self, model: TrainableModel) -> None:
        """Check that the model's target is a class index.

        Raises:
            ConfigurationError: The target is not a class index.
        """
        check_labels(self.name, model)

    def poisoned(self, device: Device, examples: Examples) -> Examples:
        """Return the examples with wrong labels."""
        x, labels = examples.take()
        y, classes = np.asarray(labels), int(device.model.classes or 0)
        if self.labels == "mirrored":
            return Examples(x, np.asarray(classes - 1 - y, y.dtype))
        random = generator_for(device.seed, device.id, "attack")
        return Examples(x, random.integers(classes, size=y.shape).astype(y.dtype))


def check_labels(name: str, model: TrainableModel) -> None:
    """Check that a model has one target, a class index for each example.

    Raises:
        ConfigurationError: It has a different target, or several.
    """
    target, *others = model.targets.values()
    if others or model.classes is None or np.dtype(target.dtype).kind != "i" or len(target.shape) != 1:
        found = f"{len(others) + 1} targets" if others else f"the target {target.dtype} {list(target.shape)}"
        raise ConfigurationError(
            f"attack {name}: expected a model with one target, a class number for each example, found {model.name} with "
            f"{found}; choose another attack, or write your own"
        )
