"""The common base of the Optuna and random sweepers: trials are jobs of a sweep that can be resumed."""

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from odt_sim._support.checks import checked_count
from odt_sim._support.files import write_file
from odt_sim.cli.messages import say
from odt_sim.cli.saved_config import check_new_sweep
from odt_sim.cli.search_space import Space, first_values, parsed_space
from odt_sim.errors import ConfigurationError
from odt_sim.persistence.lock import locked
from odt_sim.persistence.run_folder import BEST, SWEEP, RunFolder, document

GROUP = "hydra.sweeper"


@dataclass(frozen=True)
class Best:
    """The trial with the best validation result.

    Attributes:
        trial: Its number, which is also its job's number.
        value: The mean over seen devices of the first metric on validation examples.
        overrides: The overrides that were drawn for it.
    """

    trial: int
    value: float
    overrides: Sequence[str]


class SearchSweeper(Sweeper):
    """A sweeper that draws trials from a search space; each trial is the job with the same number."""

    def __init__(self, n_trials: int, n_jobs: int, seed: int, params: Mapping[str, Any] | None) -> None:
        """Check and store the settings of `hydra.sweeper`.

        Args:
            n_trials: The total number of trials, including those of a resumed sweep.
            n_jobs: The number of trials that are launched together; more than 1 is useful with a parallel launcher.
            seed: The seed of the search; the runs' seed is the setting `seed`.
            params: Overrides of the search, as in `hydra.sweeper.params` of Hydra's sweeper.

        Raises:
            ConfigurationError: A number is not an integer, or is too small.
        """
        self._n_trials = checked_count("n_trials", n_trials, 1, group=GROUP)
        self._n_jobs = checked_count("n_jobs", n_jobs, 1, group=GROUP)
        self._seed = checked_count("seed", seed, group=GROUP)
        self._params = dict(params or {})

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store the objects that Hydra passes to a sweeper."""
        self._loader, self._config = hydra_context.config_loader, config
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run the missing trials, and write `best.json`.

        Raises:
            ConfigurationError: The arguments contain no search space, or a setting does not fit.
            CheckpointError: The folder contains other results, or another process searches there.
        """
        given = [f"{key}={value}" for key, value in self._params.items()]
        space, fixed = parsed_space([*given, *arguments], self._loader)
        if not space:
            raise ConfigurationError(
                "hydra/sweeper: nothing to search; give a key several values, such as "
                "'train.learning_rate=tag(log,interval(0.01,1))'"
            )
        folder = Path(self._config.hydra.sweep.dir)
        with locked(folder, lambda line: None):
            if self.fresh:
                check_new_sweep(folder)
            best = self.search(space, fixed, folder, self._maximizes(space, fixed))
            if best:
                _write_best(best, folder)

    @abstractmethod
    def search(self, space: Space, fixed: Sequence[str], folder: Path, maximize: bool) -> Best | None:
        """Call `save`, and run the missing trials.

        Args:
            space: The search space.
            fixed: The overrides that all trials share.
            folder: The sweep's folder.
            maximize: Whether a larger validation result is better.

        Returns:
            The best trial; None if no trial has a validation metric.
        """

    def save(self, folder: Path) -> None:
        """Save the configuration for resuming the search, once all checks have passed."""
        OmegaConf.save(self._config, folder / SWEEP)

    @property
    def fresh(self) -> bool:
        """Whether the sweep is new, rather than resumed."""
        return self._config.run.resume is None

    def _maximizes(self, space: Space, fixed: Sequence[str]) -> bool:
        """Return whether larger values are better for the metric that trials return."""
        from odt_sim.cli.build import compares_upwards

        config = self._loader.load_sweep_config(self._config, [*fixed, *first_values(space)])
        return compares_upwards(config)

    def run_trials(self, drawn: Mapping[int, Sequence[str]], fixed: Sequence[str]) -> list[float]:
        """Run consecutive trials together, and return each validation result; NaN for a trial without one.

        Args:
            drawn: The drawn overrides of each trial, by number.
            fixed: The overrides that all trials share.
        """
        jobs = [[*fixed, *overrides] for overrides in drawn.values()]
        returned = self._launcher.launch(jobs, initial_job_idx=min(drawn))
        return [float(job.return_value) for job in returned]


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
    """Return the number of devices behind a trial's validation figure; 0 without a summary or a figure."""
    summary = RunFolder(folder).summary()
    figures = next(iter((summary.metrics_validation or {}).values()), None) if summary else None
    return figures["devices"] if figures else 0


def _write_best(best: Best, folder: Path) -> None:
    """Write and print the best trial."""
    job = folder / str(best.trial)
    content = {"trial": best.trial, "validation": best.value, "overrides": list(best.overrides)}
    write_file(folder / BEST, document(content))
    line = f"best trial: {os.path.relpath(job)}, validation {best.value:.4g}: {' '.join(best.overrides)}"
    from rich.markup import escape

    say(escape(line))
