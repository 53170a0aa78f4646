"""The search over trials by Optuna: draws, outcomes and pruning.

A search keeps no database. Its study is in memory and rebuilt from the records of the trials' runs and from the file
`SEARCHED` in the sweep's folder, which contains the draws.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odt_sim._support.files import write_file
from odt_sim._support.system import package
from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.metrics.names import first_metric, higher_is_better
from odt_sim.observers.base import Observer, RunInfo
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.run_folder import RunFolder, document
from odt_sim.persistence.summary import Summary
from odt_sim.tuning.space import Choice, Interval, Space

SEARCHED = "search.json"  # in the folder of a search: what is searched, and the draws of each trial
SAMPLERS = {"tpe": "TPESampler", "random": "RandomSampler"}
PRUNERS = {
    "none": "NopPruner",
    "median": "MedianPruner",
    "successive_halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
}
IRRELEVANT = ("backend", "tracker", "run.resume=", "run.storage=")
"""Prefixes of overrides that do not affect results."""


def sampler(name: str, seed: int) -> Any:
    """Return one of Optuna's samplers.

    Raises:
        ConfigurationError: Optuna is missing, or the name is unknown.
    """
    return _named("sampler", name, SAMPLERS)(seed=seed)


def pruner(name: str, settings: Mapping[str, Any] | None) -> Any:
    """Return one of Optuna's pruners.

    Raises:
        ConfigurationError: Optuna is missing, the name is unknown, or a setting does not fit.
    """
    try:
        return _named("pruner", name, PRUNERS)(**(settings or {}))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"hydra.sweeper.pruner_settings: {error}") from error


def _named(setting: str, name: str, known: Mapping[str, str]) -> Any:
    optuna = package("optuna", "hydra/sweeper: needs optuna", "tuning")
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # no line for each trial
    if name not in known:
        raise ConfigurationError(f"hydra.sweeper.{setting}: expected one of {', '.join(known)}, found {name!r}")
    return getattr(getattr(optuna, f"{setting}s"), known[name])


def _study(maximize: bool, **settings: Any) -> Any:
    import optuna

    return optuna.create_study(study_name="sweep", direction="maximize" if maximize else "minimize", **settings)


class Search:
    """A search over a space; each trial is the run with the trial's number in the sweep's folder.

    The sampler of a trial is seeded by the trial's number, so that a resumed search chooses the same trials.
    """

    def __init__(
        self, space: Space, fixed: Sequence[str], folder: Path, *, maximize: bool, sampler: str, pruner: Any, seed: int
    ) -> None:
        """Create a search, or continue the one in the folder.

        Args:
            space: The search space.
            fixed: The overrides that all trials share.
            folder: The sweep's folder.
            maximize: Whether a larger validation result is better.
            sampler: A key of `SAMPLERS`.
            pruner: One of Optuna's pruners.
            seed: The seed of the draws.

        Raises:
            ConfigurationError: The folder contains another search.
            CheckpointError: The file of the draws is damaged.
        """
        self._space, self._folder, self._maximize = space, folder, maximize
        self._sampler, self._seed = sampler, seed
        self._searched = {
            "space": {key: repr(dimension) for key, dimension in space.items()},
            "fixed": [each for each in fixed if not each.startswith(IRRELEVANT)],
        }
        self._drawn: list[dict[str, Any]] = self._saved_draws()
        self._study = _study(maximize, pruner=pruner)

    def _saved_draws(self) -> list[dict[str, Any]]:
        path = self._folder / SEARCHED
        if not path.exists():
            return []
        try:
            saved = json.loads(path.read_bytes())
            draws, searched = list(saved.pop("trials")), saved
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path}: damaged; start the search in another folder") from error
        if searched != self._searched:
            raise ConfigurationError(
                f"{self._folder}: contains a search with other settings or intervals; resume it with "
                f"run.resume={self._folder} and no other settings than hydra.sweeper.n_trials, or choose another "
                "folder: hydra.sweep.dir=..."
            )
        return draws

    def ask(self, numbers: Sequence[int]) -> dict[int, Any]:
        """Return trials with consecutive numbers that run together; new ones are drawn and saved."""
        trials = {number: self._asked(number) for number in numbers}
        if len(self._drawn) <= numbers[-1]:
            self._drawn += [dict(trial.params) for number, trial in trials.items() if number >= len(self._drawn)]
            write_file(self._folder / SEARCHED, document({**self._searched, "trials": self._drawn}))
        return trials

    def _asked(self, number: int) -> Any:
        if number < len(self._drawn):
            self._study.enqueue_trial(self._drawn[number])
        self._study.sampler = sampler(
            self._sampler, int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        )
        return self._study.ask({key: _distribution(dimension) for key, dimension in self._space.items()})

    def overrides(self, trial: Any) -> list[str]:
        """Return the overrides that were drawn for a trial."""
        return [f"{key}={dimension.written(trial.params[key])}" for key, dimension in self._space.items()]

    def tell(self, trial: Any) -> None:
        """Record the outcome of a trial whose run has ended."""
        _settle(self._study, trial, RunFolder(self._folder / str(trial.number)))

    def best(self) -> dict[str, Any] | None:
        """Return number, validation result and overrides of the best trial; None if no trial has a result."""
        from optuna.trial import TrialState

        complete = {
            trial.number: trial for trial in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        }
        if not complete:
            return None
        figures = {number: trial.value for number, trial in complete.items()}
        best = complete[best_trial(figures, self._folder, self._maximize)]
        return {"trial": best.number, "validation": best.value, "overrides": self.overrides(best)}


def best_trial(figures: Mapping[int, float], folder: Path, maximize: bool) -> int:
    """Return the trial that validates best; the first of equals.

    As in reports, trials with more devices with finite figures come first, so that a trial cannot win because diverged
    devices are missing from its mean.

    Args:
        figures: The finite validation result of each trial, at least one.
        folder: The sweep's folder.
        maximize: Whether a larger result is better.
    """
    sign = 1 if maximize else -1
    return max(sorted(figures), key=lambda number: (_devices(folder / str(number)), sign * figures[number]))


def _devices(folder: Path) -> int:
    """Return the number of devices behind a trial's validation result; 0 without a summary or a result."""
    summary = RunFolder(folder).summary()
    figures = next(iter((summary.metrics_validation or {}).values()), None) if summary else None
    return figures["devices"] if figures else 0


def validation_of(summary: Summary) -> float:
    """Return the mean over seen devices of a run's first metric on validation examples; NaN without such examples."""
    figures = (summary.metrics_validation or {})[next(iter(summary.metrics))]
    return figures["weighted_mean"] if figures else math.nan


def _distribution(dimension: Choice | Interval) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.values)
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _settle(study: Any, trial: Any, run: RunFolder) -> None:
    """Report the validation results of an ended run, and whether it completed, was pruned or failed."""
    from optuna.trial import TrialState

    summary = run.summary()
    for record in run.rounds():
        _report(trial, record)
    if summary and summary.pruned:
        study.tell(trial, state=TrialState.PRUNED)
    elif summary and math.isfinite(value := validation_of(summary)):
        study.tell(trial, value)
    else:
        study.tell(trial, state=TrialState.FAIL)


def _report(trial: Any, record: RoundRecord) -> bool:
    """Report a round's validation result, and return whether the pruner rejects it."""
    metric = first_metric(record.figures, "validation_")
    figure = record.figures[f"validation_{metric}"] if metric else None
    if figure is None:
        return False
    trial.report(figure, record.round)
    return bool(trial.should_prune())


class Pruning(Observer):
    """Stops a trial's run if the pruner rejects a validation result, compared with the trials of earlier batches.

    A resumed run first reports its recorded results, so that it stops after the same round.
    """

    waits = True
    prunes = True

    def __init__(self, folder: Path, number: int, earlier: int, name: str, settings: Mapping[str, Any] | None) -> None:
        """Create the observer of a trial.

        Args:
            folder: The sweep's folder.
            number: The trial's number.
            earlier: The number of trials that ended before this trial's batch began.
            name: The pruner's name, a key of `PRUNERS`.
            settings: The pruner's settings.
        """
        self._folder, self._number, self._earlier, self._pruner = folder, number, earlier, pruner(name, settings)
        self._trial: Any = None
        self.decides = {"hydra.sweeper.pruner": name}

    def on_begin(self, run: RunInfo) -> bool:
        """Stop a resumed run if its recorded results are rejected."""
        stops = [self.on_round(record) for record in run.recorded]
        return any(stops)

    def on_round(self, record: RoundRecord) -> bool:
        """Stop after a round with a validation result that the pruner rejects."""
        metric = first_metric(record.figures, "validation_")
        if metric is None:
            return False
        self._trial = self._trial or self._started(metric)
        if not _report(self._trial, record):
            return False
        figure = record.figures[f"validation_{metric}"]
        self.reason = f"validation {metric} {figure:.4g} is worse than that of other trials, round {record.round}"
        return True

    def _started(self, metric: str) -> Any:
        """Return this trial in a study of the earlier trials."""
        study = _study(higher_is_better(metric), pruner=self._pruner)
        trial = study.ask()
        while trial.number < self._number:
            if trial.number < self._earlier:
                _settle(study, trial, RunFolder(self._folder / str(trial.number)))
            trial = study.ask()
        return trial
