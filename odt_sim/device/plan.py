"""The epochs, steps and learning rate of local training."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from odt_sim.declarations import Settings, setting
from odt_sim.errors import ConfigurationError, ModelError

if TYPE_CHECKING:
    from odt_sim.model.trainable import TrainableModel


@dataclass(frozen=True)
class TrainingPlan(Settings, group="train"):
    """The epochs, steps and learning rate of a device in a round."""

    epochs: int = setting(1, "passes over a device's training examples in a round", least=0)
    learning_rate: float | None = setting(None, "step size; null for the rate of the model's optimizer", above=0)
    steps: int | None = setting(
        None, "steps in a round, the same for every device, instead of epochs; null for epochs", least=0
    )
    learning_rate_decay: float = setting(
        1.0, "factor of the learning rate from one round to the next; 1 keeps it", above=0, most=1
    )

    @property
    def amount(self) -> int:
        """The number of steps if set, else the number of epochs."""
        return self.epochs if self.steps is None else self.steps

    def passes(self, examples: int, batch_size: int) -> list[int]:
        """Return the number of examples of each pass; only the last pass of `steps` may be partial.

        Args:
            examples: The number of the device's examples.
            batch_size: The examples of a step.
        """
        if self.steps is None:
            return [examples] * self.epochs
        full, rest = divmod(self.steps, math.ceil(examples / batch_size))
        return [examples] * full + [rest * batch_size] * (rest > 0)

    def steps_of(self, examples: int, batch_size: int) -> int:
        """Return the number of steps in a round on a device's examples."""
        return self.epochs * math.ceil(examples / batch_size) if self.steps is None else self.steps

    def part(self, random: np.random.Generator) -> "TrainingPlan":
        """Return the partial work of a straggler: a uniform number of steps or epochs below the plan's, at least 1."""
        return self.with_amount(int(random.integers(1, self.amount)))

    def with_amount(self, amount: int) -> "TrainingPlan":
        """Return the plan with another number of steps if they are set, else another number of epochs."""
        return replace(self, epochs=amount) if self.steps is None else replace(self, steps=amount)


def check_plan(plan: object, device: int) -> None:
    """Check that a device's plan is an instance of `TrainingPlan`.

    Raises:
        ConfigurationError: It is something else, such as the class.
    """
    if not isinstance(plan, TrainingPlan):
        raise ConfigurationError(
            f"device {device}: plan: expected a TrainingPlan, found {type(plan).__name__}; pass an instance, such as "
            "TrainingPlan(epochs=2)"
        )


def learning_rate_of(
    model: "TrainableModel",
    plan: TrainingPlan,
    rate: float | None,
    what: str,
    scheduled: Callable[[], float],
    round: int = 0,
) -> float:
    """Return the step size: the given one, else the plan's or the model's own, which decay with the round.

    Args:
        model: The model to train.
        plan: The device's plan.
        rate: The step size passed to a call; None for none.
        what: The name for errors, such as `device 3`.
        scheduled: Returns the step size of the model's schedule; called only if it has one.
        round: The round, counted from 1.

    Raises:
        ConfigurationError: The given step size is not finite.
        ModelError: The model takes no learning rate, or needs one.
    """
    if rate is not None and not (isinstance(rate, int | float | np.number) and math.isfinite(rate)):
        raise ConfigurationError(f"{what}: expected a finite learning rate, found {rate!r}")
    decay = 1.0 if rate is not None else plan.learning_rate_decay ** max(round - 1, 0)
    if rate is None:
        rate = plan.learning_rate
    if rate is not None and "learning_rate" not in model.capabilities:
        raise ModelError(
            f"{model.where}: has a fixed step size; leave out the learning rate, or export the model "
            "with a variable one"
        )
    if rate is None:
        rate = scheduled() if model.scheduled else own_learning_rate(model)
    if rate is None and "learning_rate" in model.capabilities:
        raise ModelError(f"{model.where}: has no default learning rate; pass one")
    return 0.0 if rate is None else float(rate) * decay


def own_learning_rate(model: "TrainableModel") -> float | None:
    """Return the learning rate of the model's optimizer, for a schedule the first one; None if the file names none."""
    rate = model.manifest.optimizer.get("learning_rate") if model.manifest else None
    return None if rate is None else float(rate)
