"""The sweepers of `odt-sim run -m`: all combinations of values (`basic`), and searches (`random`, `optuna`)."""

import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from odt_sim._support.checks import checked_count
from odt_sim._support.files import write_file
from odt_sim.cli.hydra.saved_config import check_new_sweep
from odt_sim.cli.messages import say
from odt_sim.errors import ConfigurationError
from odt_sim.persistence.run_folder import BEST, SUMMARY, SWEEP, document
from odt_sim.persistence.storage import locked
from odt_sim.tuning.space import first_values, parsed_space

GROUP = "hydra.sweeper"
PACKAGE = (
    "hydra_plugins.odt_sim"  # Hydra only accepts plugins of hydra_plugins, but finds none in editable installations
)
GRID, SEARCH = f"{PACKAGE}.GridSweeper", f"{PACKAGE}.SearchSweeper"
OF_SEARCHES: Mapping[str, Any] = {
    "n_trials": 20,
    "n_jobs": 1,
    "seed": 0,
    "params": None,
    "sampler": "tpe",
    "pruner": "none",
    "pruner_settings": None,
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "basic": {"_target_": GRID, "max_batch_size": None, "params": None},
    "random": {"_target_": SEARCH, **OF_SEARCHES, "sampler": "random"},
    "optuna": {"_target_": SEARCH, **OF_SEARCHES},
}
"""The options of `hydra/sweeper`; `basic`, the default, replaces Hydra's own."""


def register_sweepers() -> None:
    """Register the sweepers in Hydra."""
    plugins = Plugins.instance()  # registers Hydra's own sweepers, so store the options only afterwards
    plugins.class_name_to_class |= {GRID: GridSweeper, SEARCH: SearchSweeper}
    for name, node in SETTINGS.items():
        ConfigStore.instance().store(group="hydra/sweeper", name=name, node=dict(node), provider="odt_sim")


class _ResumableSweeper(Sweeper):
    """A sweeper whose sweeps can be resumed, in folders that contain no other sweep."""

    _option: str

    def __init__(self, params: Mapping[str, Any] | None = None, **unknown: Any) -> None:
        if unknown:
            names = ", ".join(name for name in SETTINGS[self._option] if name != "_target_")
            raise ConfigurationError(
                f"{GROUP}.{next(iter(unknown))}: unknown setting of hydra/sweeper={self._option}; expected one of {names}"
            )
        self._params = [f"{key}={value}" for key, value in (params or {}).items()]

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store the objects that Hydra passes to a sweeper."""
        self._loader, self._config, self._folder = hydra_context.config_loader, config, Path(config.hydra.sweep.dir)
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def _check_folder(self) -> None:
        """Refuse a new sweep in the folder of another run or sweep: it would overwrite the files for resuming that."""
        if self._config.run.resume is None:
            check_new_sweep(self._folder)

    def _save(self) -> None:
        """Save the configuration for resuming the sweep, once all checks have passed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self._config, self._folder / SWEEP)

    def _launch(self, jobs: Sequence[Sequence[str]], first: int) -> list[Any]:
        """Run consecutive jobs together, and return what they return; raises the error of a job that did not start."""
        return [job.return_value for job in self._launcher.launch(jobs, initial_job_idx=first)]


class GridSweeper(_ResumableSweeper):
    """A sweeper over all combinations of values."""

    _option = "basic"

    def __init__(self, max_batch_size: int | None = None, **shared: Any) -> None:
        """Check and store the settings of `hydra.sweeper`.

        Args:
            max_batch_size: The number of jobs that are launched together; None for all.
            shared: The settings of every sweeper, see `_ResumableSweeper`.

        Raises:
            ConfigurationError: A setting is unknown or does not fit.
        """
        super().__init__(**shared)
        self._together = max_batch_size and checked_count("max_batch_size", max_batch_size, 1, group=GROUP)

    def sweep(self, arguments: list[str]) -> Any:
        """Run the jobs.

        Raises:
            CheckpointError: The folder contains results, and the sweep does not resume them.
            ConfigurationError: A key has an interval.
        """
        self._check_folder()
        overrides = OverridesParser.create(self._loader).parse_overrides([*self._params, *arguments])
        values = {}
        for override in overrides:  # the last override of a key is used
            key, swept = override.get_key_element(), override.is_sweep_override()
            if swept and not override.is_discrete_sweep():
                raise ConfigurationError(
                    f"{key}: an interval needs a search; add hydra/sweeper=optuna or hydra/sweeper=random"
                )
            listed = override.sweep_string_iterator() if swept else [override.get_value_element_as_str()]
            values[key] = [f"{key}={value}" for value in listed]
        jobs = list(product(*values.values()))
        for job in jobs:
            self._loader.load_sweep_config(self._config, list(job))  # refuses a mistake before the first job runs
        self._save()
        size = self._together or len(jobs)
        return [self._launch(jobs[first : first + size], first) for first in range(0, len(jobs), size)]


class SearchSweeper(_ResumableSweeper):
    """A sweeper whose trials Optuna chooses, see `odt_sim.tuning.search.Search`."""

    _option = "optuna"

    def __init__(
        self,
        n_trials: int,
        n_jobs: int,
        seed: int,
        sampler: str,
        pruner: str,
        pruner_settings: Mapping[str, Any] | None,
        **shared: Any,
    ) -> None:
        """Check and store the settings of `hydra.sweeper`.

        Args:
            n_trials: The total number of trials, including those of a resumed sweep.
            n_jobs: The number of trials that are launched together; more than 1 is useful with a parallel launcher.
            seed: The seed of the search; the runs' seed is the setting `seed`.
            sampler: A key of `odt_sim.tuning.search.SAMPLERS`.
            pruner: A key of `odt_sim.tuning.search.PRUNERS`.
            pruner_settings: The arguments of Optuna's pruner.
            shared: The settings of every sweeper, see `_ResumableSweeper`.

        Raises:
            ConfigurationError: Optuna is missing, or a setting is unknown or does not fit.
        """
        from odt_sim.tuning import search as searches  # loads the model's code, which other commands do not need

        super().__init__(**shared)
        self._n_trials = checked_count("n_trials", n_trials, 1, group=GROUP)
        self._n_jobs = checked_count("n_jobs", n_jobs, 1, group=GROUP)
        self._seed = checked_count("seed", seed, group=GROUP)
        self._sampler, self._pruner = sampler, searches.pruner(pruner, pruner_settings)
        searches.sampler(sampler, seed)  # refuses an unknown one

    def sweep(self, arguments: list[str]) -> Any:
        """Run the missing trials, and write `best.json`.

        Raises:
            ConfigurationError: The arguments contain no search space, or a setting does not fit.
            CheckpointError: The folder contains other results, or another process searches there.
        """
        from rich.markup import escape

        from odt_sim.cli.hydra.build import compares_upwards
        from odt_sim.tuning.search import Search

        space, fixed = parsed_space([*self._params, *arguments], self._loader)
        if not space:
            raise ConfigurationError(
                "hydra/sweeper: nothing to search; give a key several values, such as "
                "'train.learning_rate=tag(log,interval(0.01,1))'"
            )
        with locked(self._folder, lambda line: None):
            self._check_folder()
            config = self._loader.load_sweep_config(self._config, [*fixed, *first_values(space)])
            search = Search(
                space,
                fixed,
                self._folder,
                maximize=compares_upwards(config),
                sampler=self._sampler,
                pruner=self._pruner,
                seed=self._seed,
            )
            self._save()
            for first in range(0, self._n_trials, self._n_jobs):
                trials = search.ask(range(first, min(first + self._n_jobs, self._n_trials)))
                if not all((self._folder / str(number) / SUMMARY).exists() for number in trials):
                    self._launch([[*fixed, *search.overrides(trial)] for trial in trials.values()], first)
                for trial in trials.values():
                    search.tell(trial)
            if best := search.best():
                write_file(self._folder / BEST, document(best))
                job = os.path.relpath(self._folder / str(best["trial"]))
                drawn = " ".join(best["overrides"])
                say(escape(f"best trial: {job}, validation {best['validation']:.4g}: {drawn}"))
