"""Search by Optuna: `odt-sim run -m hydra/sweeper=optuna 'train.learning_rate=tag(log,interval(0.01,1))'`."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from odt_sim.cli import optuna_study
from odt_sim.cli.optuna_study import FILE, PRUNED, check_optuna, opened, reopen_failed
from odt_sim.cli.search_space import Choice, Interval, Space
from odt_sim.cli.search_sweeper import Best, SearchSweeper, best_trial
from odt_sim.errors import CheckpointError, ConfigurationError

IRRELEVANT = ("backend", "tracker", "run.resume=", "run.storage=")
"""Prefixes of overrides that do not affect results."""


class OptunaSweeper(SearchSweeper):
    """A sweeper whose trials Optuna chooses, given all earlier trials.

    The sampler of a trial is seeded by the trial's number, so that a resumed search chooses the same trials.
    """

    def __init__(self, sampler: str, pruner: str, pruner_settings: Mapping[str, Any] | None, **shared: Any) -> None:
        """Check and store the settings of `hydra.sweeper`.

        Args:
            sampler: A key of `odt_sim.cli.optuna_study.SAMPLERS`.
            pruner: A key of `odt_sim.cli.optuna_study.PRUNERS`.
            pruner_settings: The arguments of Optuna's pruner.
            shared: The settings of every search, see `SearchSweeper`.

        Raises:
            ConfigurationError: Optuna is missing, or a setting does not fit.
        """
        super().__init__(**shared)
        check_optuna()
        self._sampler_name, self._pruner = sampler, optuna_study.pruner(pruner, pruner_settings)
        self._sampler(0)  # refuses an unknown sampler

    def search(self, space: Space, fixed: Sequence[str], folder: Path, maximize: bool) -> Best | None:
        """Run the study's missing trials, starting with those that failed or that a killed search left unfinished.

        Raises:
            CheckpointError: The folder already contains a study.
            ConfigurationError: The study belongs to another search.
        """
        if self.fresh and (folder / FILE).exists():
            raise CheckpointError(
                f"{folder}: already contains a sweep; resume it with run.resume={folder}, or choose another folder"
            )
        direction = "maximize" if maximize else "minimize"
        with opened(folder, direction=direction, pruner=self._pruner, sampler=self._sampler(0)) as study:
            _check_same(study, space, fixed, folder)
            self.save(folder)
            reopen_failed(folder)
            for trials in self._unfinished(study):
                self._run(study, trials, space, fixed)
            while len(study.get_trials(deepcopy=False)) < self._n_trials:
                self._run(study, self._ask(study), space, fixed)
            return _best(study, space, folder, maximize)

    def _unfinished(self, study: Any) -> Iterator[list[Any]]:
        """Yield the unfinished trials of an earlier search, in batches of consecutive numbers that run together."""
        from optuna.trial import Trial, TrialState

        left = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for _, group in groupby(enumerate(left), lambda pair: pair[1].number - pair[0]):
            trials = [Trial(study, each._trial_id) for _, each in group]
            for first in range(0, len(trials), self._n_jobs):
                yield trials[first : first + self._n_jobs]

    def _run(self, study: Any, trials: Sequence[Any], space: Space, fixed: Sequence[str]) -> None:
        drawn = {trial.number: _draw(trial, space) for trial in trials}
        for number, figure in zip(drawn, self.run_trials(drawn, fixed), strict=True):
            _tell(study, number, figure)

    def _ask(self, study: Any) -> list[Any]:
        """Ask Optuna for the next trials, which run together."""
        first, trials = len(study.get_trials(deepcopy=False)), []
        for number in range(first, min(first + self._n_jobs, self._n_trials)):
            study.sampler = self._sampler(number)
            trials.append(study.ask())
        return trials

    def _sampler(self, number: int) -> Any:
        seed = np.random.SeedSequence([self._seed, number]).generate_state(1)[0]
        return optuna_study.sampler(self._sampler_name, int(seed))


def _check_same(study: Any, space: Space, fixed: Sequence[str], folder: Path) -> None:
    """Refuse a study of another search; a new study records its search."""
    searched = {key: repr(dimension) for key, dimension in space.items()}
    wanted = json.dumps([searched, [each for each in fixed if not each.startswith(IRRELEVANT)]])
    found = study.user_attrs.get("search")
    if found is None:
        study.set_user_attr("search", wanted)
    elif json.loads(found) != json.loads(wanted):
        raise ConfigurationError(
            f"{folder}: contains a search with other settings or intervals; resume it with run.resume={folder} and no "
            "other settings than hydra.sweeper.n_trials, or choose another folder: hydra.sweep.dir=..."
        )


def _draw(trial: Any, space: Space) -> list[str]:
    """Draw a trial's missing values, and return its overrides; values that a killed search drew are kept."""
    for key, dimension in space.items():
        _suggest(trial, key, dimension)
    return _overrides(trial.params, space)


def _overrides(drawn: Mapping[str, Any], space: Space) -> list[str]:
    return [f"{key}={dimension.written(drawn[key])}" for key, dimension in space.items()]


def _suggest(trial: Any, key: str, dimension: Choice | Interval) -> None:
    if isinstance(dimension, Choice):
        trial.suggest_categorical(key, dimension.values)
    elif dimension.whole:
        trial.suggest_int(key, int(dimension.low), int(dimension.high), log=dimension.log)
    else:
        trial.suggest_float(key, dimension.low, dimension.high, log=dimension.log)


def _tell(study: Any, number: int, figure: float) -> None:
    """Record a trial's figure, or that it was pruned or has failed; a resumed search runs a failed trial again."""
    from optuna.trial import TrialState

    if study.get_trials(deepcopy=False)[number].user_attrs.get(PRUNED):
        study.tell(number, state=TrialState.PRUNED)
    elif math.isfinite(figure):
        study.tell(number, figure)
    else:
        study.tell(number, state=TrialState.FAIL)


def _best(study: Any, space: Space, folder: Path, maximize: bool) -> Best | None:
    from optuna.trial import TrialState

    complete = {each.number: each for each in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
    if not complete:
        return None
    best = complete[best_trial({number: each.value for number, each in complete.items()}, folder, maximize)]
    return Best(best.number, best.value, _overrides(best.params, space))
