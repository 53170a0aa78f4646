"""Backdoor: images with a patch in the corner get the attacker's class.

Papers: Gu et al. 2017, BadNets, section 4 (the patch); Bagdasaryan et al. 2020, How to Backdoor Federated Learning, section 3
(`factor`: model replacement).
Rule: a hostile device stamps a square patch, `size` pixels wide with the value `value`, onto the lower right corner of
a share of its images, labels them `target`, trains, and sends `factor` times its update. The attack's success is the
share of an honest device's test images of other classes that a model assigns to `target` after stamping.
Hyper-parameters: `target`, a class, default 0; `share`, 0 to 1, default 0.5, where 0 measures the success without an
attack; `size`, 1 to the image's shorter side, default 2; `value`, any number, default 1, white in images of 0..1;
`factor`, any number, default 1, see `scaling`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from odt_sim.attacks.label_poisoning import check_labels
from odt_sim.attacks.scaling import Scaling
from odt_sim.data.store.columns import Array
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.device.random import generator_for
from odt_sim.errors import ConfigurationError
from odt_sim.hyperparameters import count, number
from odt_sim.model.trainable import TrainableModel


class Backdoor(Scaling):
    """Attack by training on stamped images with the attacker's label.

    Attributes:
        target: Class label of stamped images.
        share: Share of a hostile device's training images that are stamped, 0 to 1.
        size: Side length of the patch in pixels, from 1 to the image's shorter side.
        value: Value of the patch's pixels.
    """

    target: int = count(0)
    share: float = number(0.5, 0, 1)
    size: int = count(2, 1)
    value: float = number(1.0, -math.inf)
    factor = 1.0

    def check(self, model: TrainableModel) -> None:
        """Check that the model's inputs are images that contain the patch, and that it has the target class.

        Raises:
            ConfigurationError: The attack does not apply to the model.
        """
        check_labels(self.name, model)
        shapes = [list(tensor.shape) for tensor in model.inputs.values()]
        if [len(shape) for shape in shapes] != [4]:
            raise ConfigurationError(
                f"attack {self.name}: expected a model for images, [rows, height, width, channels], found {model.name} with "
                f"{', '.join(map(str, shapes))}; choose another attack, or write your own"
            )
        if self.size > (most := min(shapes[0][1:3])):
            raise ConfigurationError(
                f"attack.size: expected 1 to {most}, since {model.name} takes images of {shapes[0][1]} x "
                f"{shapes[0][2]} pixels, found {self.size}"
            )
        if self.target >= (classes := int(model.classes or 0)):
            raise ConfigurationError(f"attack.target: expected a class from 0 to {classes - 1}, found {self.target}")

    def poisoned(self, device: Device, examples: Examples) -> Examples:
        """Return the examples, of which a share is stamped, the same ones in each round."""
        x, y = map(np.array, examples.take())
        random = generator_for(device.seed, device.id, "attack")
        chosen = random.permutation(len(y))[: math.ceil(self.share * len(y))]
        x[chosen], y[chosen] = self._stamped(x[chosen]), self.target
        return Examples(x, y)

    def triggered(self, examples: Examples) -> Examples | None:
        """Return the stamped examples of other classes, with the attacker's label."""
        x, y = map(np.asarray, examples.take())
        stamped = self._stamped(x[y != self.target])
        return Examples(stamped, np.full(len(stamped), self.target, y.dtype))

    def _stamped(self, images: NDArray[np.generic]) -> Array:
        stamped = np.array(images)
        stamped[:, -self.size :, -self.size :] = self.value
        return stamped
