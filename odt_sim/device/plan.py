"""How long and how fast a device trains."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from odt_sim.errors import ConfigurationError


@dataclass(frozen=True)
class TrainingPlan:
    """What a device does when a strategy tells it to train.

    Attributes:
        epochs: Passes over the device's training examples in a round, at least 0.
        learning_rate: The step size, above 0; None for the one the model was exported with.
        steps: The steps of a round in place of the epochs, at least 0, however many examples a device has; None for the
            epochs.
    """

    epochs: int = 1
    learning_rate: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if self.epochs < 0:
            raise ConfigurationError(f"train.epochs: expected at least 0, found {self.epochs}")
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise ConfigurationError(f"train.learning_rate: expected a number above 0, found {self.learning_rate}")
        if self.steps is not None and self.steps < 0:
            raise ConfigurationError(f"train.steps: expected at least 0, found {self.steps}")

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
