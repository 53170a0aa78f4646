"""How long and how fast a device trains."""

from dataclasses import dataclass

from odt_sim.errors import ConfigurationError


@dataclass(frozen=True)
class TrainingPlan:
    """What a device does when a strategy tells it to train.

    Attributes:
        epochs: Passes over the device's training examples in a round, at least 0.
        learning_rate: The step size, above 0; None for the one the model was exported with.
    """

    epochs: int = 1
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if self.epochs < 0:
            raise ConfigurationError(f"train.epochs: expected at least 0, found {self.epochs}")
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise ConfigurationError(f"train.learning_rate: expected a number above 0, found {self.learning_rate}")
