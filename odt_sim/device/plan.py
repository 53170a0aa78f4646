"""How long and how fast a device trains."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.model.trainable import TrainableModel
from odt_sim.settings import Settings, setting


@dataclass(frozen=True)
class TrainingPlan(Settings, group="train"):
    """How long and how fast a device trains in a round."""

    epochs: int = setting(1, "passes over a device's training examples in a round", least=0)
    learning_rate: float | None = setting(None, "step size; null for the rate of the model's optimizer", above=0)
    steps: int | None = setting(
        None, "steps in a round instead of epochs, the same for every device; null for epochs", least=0
    )

    @property
    def amount(self) -> int:
        """How many steps, or else how many epochs."""
        return self.epochs if self.steps is None else self.steps

    def passes(self, examples: int, batch_size: int) -> Iterator[int]:
        """Yields for each pass over a device's examples how many of them it takes: all, but for the last one of `steps`.

        Args:
            examples: How many the device has.
            batch_size: The examples of a step.
        """
        if self.steps is None:
            yield from repeat(examples, self.epochs)
            return
        full, rest = divmod(self.steps, math.ceil(examples / batch_size))
        yield from repeat(examples, full)
        if rest:
            yield rest * batch_size

    def part(self, random: np.random.Generator) -> "TrainingPlan":
        """Returns what a slow device does of at least 2 steps or epochs: 1 to one below them, all equally likely."""
        done = int(random.integers(1, self.amount))
        return replace(self, epochs=done) if self.steps is None else replace(self, steps=done)


def learning_rate_of(model: TrainableModel, plan: TrainingPlan, given: float | None, what: str) -> float:
    """Returns the step size that a step takes: the given one, else the plan's, else the model's own.

    Args:
        model: What is trained.
        plan: How.
        given: The step size that a call names; None for none.
        what: Who trains, for the error: `device 3`.

    Raises:
        ConfigurationError: The given one is not finite.
        ModelError: The model takes no learning rate, or has none of its own and none is given.
    """
    if given is not None and not (isinstance(given, int | float | np.number) and math.isfinite(given)):
        raise ConfigurationError(f"{what}: expected a finite learning rate, found {given!r}")
    if given is None:
        given = plan.learning_rate
    if given is not None and "learning_rate" not in model.capabilities:
        raise ModelError(f"{model.where}: its step size is fixed; leave the learning rate out or export it again")
    if given is None:
        given = model.manifest.optimizer.get("learning_rate") if model.manifest else None
    if given is None and "learning_rate" in model.capabilities:
        raise ModelError(f"{model.where}: it names no learning rate of its own; give one")
    return 0.0 if given is None else float(given)
