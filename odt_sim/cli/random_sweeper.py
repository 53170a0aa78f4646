"""Random search: `odt-sim run -m hydra/sweeper=random 'train.learning_rate=tag(log,interval(0.01,1))'`."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from odt_sim.cli.search_space import Choice, Interval, Space
from odt_sim.cli.search_sweeper import Best, SearchSweeper, best_trial


class RandomSweeper(SearchSweeper):
    """A sweeper that draws each trial from the seed and the trial's number; it needs no further package."""

    def search(self, space: Space, fixed: Sequence[str], folder: Path, maximize: bool) -> Best | None:
        """Run all trials; in a resumed sweep, finished trials return their figures immediately."""
        self.save(folder)
        trials = {number: draw(space, self._seed, number) for number in range(self._n_trials)}
        figures: dict[int, float] = {}
        for first in range(0, self._n_trials, self._n_jobs):
            batch = {number: trials[number] for number in range(first, min(first + self._n_jobs, self._n_trials))}
            figures |= dict(zip(batch, self.run_trials(batch, fixed), strict=True))
        known = {number: value for number, value in figures.items() if math.isfinite(value)}
        if not known:
            return None
        best = best_trial(known, folder, maximize)
        return Best(best, known[best], trials[best])


def draw(space: Space, seed: int, number: int) -> list[str]:
    """Return the overrides of a trial.

    Args:
        space: The search space.
        seed: The search's seed.
        number: The trial's number.
    """
    generator = np.random.default_rng([seed, number])
    return [f"{key}={_value(dimension, generator)}" for key, dimension in space.items()]


def _value(dimension: Choice | Interval, generator: np.random.Generator) -> str:
    if isinstance(dimension, Choice):
        return dimension.values[generator.integers(len(dimension.values))]
    low, high = dimension.low, dimension.high + dimension.whole
    drawn = (
        math.exp(generator.uniform(math.log(low), math.log(high))) if dimension.log else generator.uniform(low, high)
    )
    return dimension.written(min(drawn, dimension.high))
