"""Pruning: end trials of a search early if their validation figures are worse than those of others."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from odt_sim.cli.optuna_study import FILE, PRUNED, SWEEPER, opened, pruner
from odt_sim.metrics.names import first_metric
from odt_sim.observers.base import Observer, RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run import WORSE_THAN_OTHERS


class Pruning(Observer):
    """Reports each validation figure to the sweep's study, and stops the run if the pruner rejects it.

    A resumed run first reports its recorded figures, so that it stops after the same round.
    """

    waits = True

    def __init__(self, folder: Path, number: int, name: str, settings: dict[str, object] | None) -> None:
        """Create the observer of a trial.

        Args:
            folder: The sweep's folder.
            number: The trial's number.
            name: The pruner's name, a key of `odt_sim.cli.optuna_study.PRUNERS`.
            settings: The pruner's settings.
        """
        self._folder, self._number, self._pruner = folder, number, pruner(name, settings)
        self.decides = {"hydra.sweeper.pruner": name}

    def on_begin(self, run: RunInfo) -> bool:
        """Stop a resumed run if its recorded figures are rejected."""
        stops = [self.on_round(record) for record in run.recorded]
        return any(stops)

    def on_round(self, record: RoundRecord) -> bool:
        """Stop after a round with a validation result that the pruner rejects."""
        from optuna.trial import Trial

        metric = first_metric(record.figures, "validation_")
        figure = record.figures[f"validation_{metric}"] if metric else None
        if figure is None:
            return False
        with opened(self._folder, pruner=self._pruner) as study:
            known = study.get_trials(deepcopy=False)[self._number]
            trial = Trial(study, known._trial_id)
            if record.round not in known.intermediate_values:
                trial.report(figure, record.round)
            # Successive halving may accept a figure that it rejected before, so the first answer is kept.
            if known.user_attrs.get(PRUNED) != record.round and not trial.should_prune():
                return False
            trial.set_user_attr(PRUNED, record.round)
        self.reason = f"validation {metric} {figure:.4g} {WORSE_THAN_OTHERS}, round {record.round}"
        return True


def pruning() -> list[Pruning]:
    """Return the pruning of the job that Hydra runs in this process; empty unless its search has a pruner."""
    settings = HydraConfig.get()
    folder, sweeper = Path(settings.sweep.dir), settings.sweeper
    searched = settings.mode == RunMode.MULTIRUN and sweeper._target_ == SWEEPER
    if not searched or sweeper.pruner == "none" or not (folder / FILE).exists():
        return []
    return [Pruning(folder, int(settings.job.num), sweeper.pruner, sweeper.pruner_settings)]
