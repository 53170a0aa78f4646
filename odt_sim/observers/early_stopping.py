"""Early stopping, at a target or when a run no longer improves."""

from typing import Literal

from odt_sim._support.checks import Range, fits
from odt_sim._support.text import counted
from odt_sim.errors import ConfigurationError
from odt_sim.metrics.names import first_metric, higher_is_better
from odt_sim.observers.base import Observer, RunInfo
from odt_sim.persistence.records import RoundRecord


class EarlyStopping(Observer):
    """Stops a run by its validation means of the first metric over the seen devices.

    The decision depends only on the rounds' records, so that a resumed run stops after the same round.
    """

    waits = True

    def __init__(self, until: Literal["target", "plateau"], *, target: float | None = None, patience: int = 3) -> None:
        """Set the condition.

        Args:
            until: `target` stops at the first evaluation that reaches the target; `plateau` stops when `patience`
                consecutive evaluations have not improved on the best one.
            target: The value of the first metric to reach, such as an accuracy from 0 to 1 or a mean squared error.
            patience: The number of evaluations, at least 1.

        Raises:
            ConfigurationError: The condition is unknown, lacks its target, or the patience is no whole number of at least 1.
        """
        if until not in ("target", "plateau"):
            raise ConfigurationError(f"until: expected target or plateau, found {until!r}")
        if until == "target" and not fits(target, float, Range()):
            raise ConfigurationError(f"until: target needs a target, found {target!r}; give one, such as target=0.9")
        if not fits(patience, int, Range(least=1)):
            raise ConfigurationError(f"patience: expected a whole number of at least 1, found {patience!r}")
        self._target, self._patience = target if until == "target" else None, patience
        limit = {"run.target": str(target)} if until == "target" else {"run.patience": str(patience)}
        self.decides = {"run.until": until, **limit}
        self._best: float | None = None
        self._without_improvement = 0

    def on_begin(self, run: RunInfo) -> bool:
        """Stop a resumed run whose records already meet the condition."""
        stops = [self.on_round(record) for record in run.recorded]
        return any(stops)

    def on_round(self, record: RoundRecord) -> bool:
        """Stop after a round whose evaluation meets the condition."""
        metric = first_metric(record.figures, "validation_")
        if metric is None:
            if first_metric(record.figures) is not None:
                raise ConfigurationError("early stopping: no validation examples; set split.validation above 0")
            return False
        value, sign = record.figures[f"validation_{metric}"], 1 if higher_is_better(metric) else -1
        if value is None:  # the metric is undefined in this round
            return False
        if self._target is not None:
            stop, why = sign * value >= sign * self._target, f"reached {self._target:g} ({value:.4g})"
        else:
            improved = self._best is None or sign * value > self._best
            self._best = sign * value if improved else self._best
            self._without_improvement = 0 if improved else self._without_improvement + 1
            stop = self._without_improvement >= self._patience
            why = f"did not improve in {counted(self._patience, 'evaluation')}"
        if stop:
            self.reason = self.reason or f"validation {metric} {why}, round {record.round}"
        return bool(stop)
