"""A gradient offset: steps that use g + mu w + b in place of the gradient g.

With `b = -mu w_ref` this is the proximal term of FedProx, Ditto and pFedMe, with `b = c - c_i` SCAFFOLD's correction, and
FedDyn is both.
"""

import math
from dataclasses import dataclass

import numpy as np

from odt_sim.device.batches import Batch
from odt_sim.device.runtime import Runtime
from odt_sim.device.step import Step
from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights


@dataclass(frozen=True, eq=False)
class GradientOffset:
    """What is added to the gradients: `mu w + b`.

    Attributes:
        b: A value for each trainable parameter.
        mu: The factor of the proximal term.
    """

    b: Weights
    mu: float

    @classmethod
    def checked(cls, model: TrainableModel, b: Weights | None, mu: float) -> "GradientOffset | None":
        """Returns an offset that holds a copy of `b`, zero where that is None; None where nothing is added.

        Raises:
            ConfigurationError: `mu` is not finite.
            ModelError: The model's steps take no offset, or `b` holds other parameters than the trainable ones.
        """
        if not (isinstance(mu, int | float | np.number) and math.isfinite(mu)):
            raise ConfigurationError(f"gradient offset: expected a finite mu, found {mu!r}")
        if b is None and mu == 0:
            return None
        if "gradient_offset" not in model.capabilities:
            raise ModelError(
                f"{model.where}: its steps take no gradient offset and are more than w - learning_rate * gradient; "
                "export it with gradient_offset=True"
            )
        layout = model.trainable_layout
        if b is None:
            return cls(Weights.zeros(layout), float(mu))
        if b.layout != layout:
            raise ModelError(
                f"{model.where}: a gradient offset holds the {len(layout.names)} trainable parameters, {layout.size} "
                f"floats; found {len(b.layout.names)} of {b.layout.size}; select the model's trainable_layout"
            )
        return cls(Weights(layout, b.vector.copy()), float(mu))


def run_step(runtime: Runtime, step: Step, batch: Batch, learning_rate: float, offset: GradientOffset | None) -> float:
    """Runs one step and returns its loss.

    Where the model's steps take no offset, a step is `w <- w - r g`, and the host does what is left:
    `w <- w - r (mu w_before + b)`, on the parameters that the step trains.
    """
    if offset is None:
        return runtime.train(batch, learning_rate, signature=step.signature)
    if "set_gradient_offset" in runtime.model.signatures:
        return runtime.train(batch, learning_rate, signature=step.signature, b=offset.b, mu=offset.mu)
    before = runtime.read().select(step.trained)
    loss = runtime.train(batch, learning_rate, signature=step.signature)
    after = runtime.read()
    rest = (before * offset.mu + offset.b.select(step.trained)) * learning_rate
    runtime.write(after.replace(after.select(step.trained) - rest))
    return loss
