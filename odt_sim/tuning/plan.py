"""The plan of a tuning: strategies, budget, seeds, and the commands that run it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from odt_sim import strategies
from odt_sim._support.files import write_file
from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.persistence.run_folder import SEARCH, TASK, TUNED, document

IRRELEVANT = ("backend", "tracker", "hydra/launcher", "hydra.launcher.")
"""Prefixes of overrides that change no result."""
OF_THE_SEARCH = ("hydra.sweeper.",)
AT_ONCE = ("hydra.sweeper.n_jobs=",)  # the number of trials that run together


def ranges_of(strategy: str) -> Mapping[str, str]:
    """Return the search ranges of a shipped strategy's hyper-parameters, in Hydra's syntax; empty for other strategies."""
    kinds = (getattr(strategies, name) for name in strategies.__all__)
    parameters = (kind.hyperparameters for kind in kinds if kind.__module__.rpartition(".")[2] == strategy)
    return {name: parameter.search for name, parameter in next(parameters, {}).items() if parameter.search}


def is_fixed(override: str) -> bool:
    """Return whether an override sets its key to one value, such as a list, a mapping, or a quoted text with commas."""
    try:
        return not OverridesParser.create().parse_override(override).is_sweep_override()
    except HydraException:
        return True  # refused with the other fixed overrides when the configuration is composed


def applied(overrides: Sequence[str], lacked: Mapping[str, Sequence[str]], strategy: str) -> list[str]:
    """Return the overrides that apply to a strategy, given those of settings that strategies lack."""
    return [each for each in overrides if each not in lacked.get(strategy, ())]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan for tuning several strategies.

    Attributes:
        strategies: The names of files in `conf/strategy`.
        budget: The number of trials of each strategy.
        seeds: The seeds of the reported runs.
        tuning_seed: The seed of all trials, which is not in `seeds`.
        overrides: The overrides of all runs; keys with an interval or several values are searched.
        rate: The learning rate of the model's optimizer; the search covers two decades around it.
        folder: The folder of searches and runs.
        lacked: The overrides of settings that a strategy lacks, by strategy; they apply to the other strategies.
    """

    strategies: Sequence[str]
    budget: int
    seeds: Sequence[int]
    tuning_seed: int
    overrides: Sequence[str]
    rate: float
    folder: Path
    lacked: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that each strategy has a setting to search.

        Raises:
            ConfigurationError: The overrides fix all settings that would be searched for a strategy.
        """
        if fixed := [strategy for strategy in self.strategies if not self.searched(strategy)]:
            keys = ", ".join(self.space(fixed[0]))
            raise ConfigurationError(
                f"strategy={','.join(fixed)}: nothing to search, since {keys} each have a single value; leave one of "
                "them out, or use odt-sim run"
            )

    def search_folder(self, strategy: str) -> Path:
        """Return the folder of a strategy's trials."""
        return self.folder / SEARCH / strategy

    def run_folder(self, strategy: str, trial: int) -> Path:
        """Return the folder of the reported runs with the settings of a trial."""
        return self.folder / TUNED / f"{strategy}-trial-{trial}"

    def overrides_of(self, strategy: str) -> list[str]:
        """Return the overrides of a strategy's runs."""
        return applied(self.overrides, self.lacked, strategy)

    def space(self, strategy: str) -> Mapping[str, str]:
        """Return the search space of a strategy, by key in Hydra's syntax, before the overrides replace parts of it."""
        low, high = self.rate / 30, self.rate * 10 / 3
        shared = {
            "train.learning_rate": f"tag(log,interval({low:.2g},{high:.2g}))",
            "train.epochs": "int(interval(1,5))",
        }
        return {**shared, **{f"strategy.{name}": each for name, each in ranges_of(strategy).items()}}

    def searched(self, strategy: str) -> Mapping[str, str]:
        """Return the search space of a strategy, by key, after the overrides."""
        overrides = self.overrides_of(strategy)
        given = {_key(each): each.partition("=")[2] for each in overrides}
        drawn = {_key(each) for each in overrides if not is_fixed(each)}
        drawn = {key for key in drawn if not key.startswith(OF_THE_SEARCH)}
        space = {key: values for key, values in self.space(strategy).items() if key not in given}
        return {**space, **{key: given[key] for key in given if key in drawn}}

    def search(self, strategy: str) -> list[str]:
        """Return the arguments of `odt-sim run` for the search of a strategy's settings."""
        overrides = self.overrides_of(strategy)
        given = {_key(each) for each in overrides}
        space = [f"{key}={values}" for key, values in self.space(strategy).items() if key not in given]
        sweeper = ["hydra/sweeper=optuna", f"hydra.sweeper.n_trials={self.budget}"]
        return [*sweeper, f"strategy={strategy}", *space, *overrides, f"seed={self.tuning_seed}"]

    def report(self, strategy: str, settings: Sequence[str]) -> list[str]:
        """Return the arguments of `odt-sim run` that run a strategy with the winning settings, for each seed."""
        overrides = self.overrides_of(strategy)
        prefixes = {_key(each): each[: each.index(_key(each))] for each in overrides}  # such as ++
        won = [f"{prefixes.get(_key(each), '')}{each}" for each in settings]
        keys = {_key(each) for each in settings}
        shared = [each for each in overrides if _key(each) not in keys and not each.startswith(OF_THE_SEARCH)]
        return [f"strategy={strategy}", *won, *shared, f"seed={','.join(map(str, self.seeds))}"]


def _key(override: str) -> str:
    """Return the key of an override, without the + or ++ before it."""
    return override.partition("=")[0].lstrip("+")


def folder_of(overrides: Sequence[str], tuning_seed: int) -> Path:
    """Return the default folder of a tuning; it depends on these settings only, so the same command finds it again."""
    deciding = sorted(each for each in overrides if not each.startswith(IRRELEVANT))
    return Path("tuning") / hashlib.sha256(json.dumps([deciding, tuning_seed]).encode()).hexdigest()[:8]


def claim(plan: Plan, what: str) -> None:
    """Record the settings of a plan's trials in its folder, or refuse a folder with other settings.

    Strategies, seeds and the budget may change: each strategy has its own trials, and a larger budget continues them.

    Args:
        plan: The plan.
        what: The name of the folder's content, for errors.

    Raises:
        ConfigurationError: The folder contains trials with other settings.
        CheckpointError: The file is damaged.
        FileError: The file cannot be written.
    """
    path = plan.folder / TASK
    deciding = sorted(each for each in plan.overrides if not each.startswith((*IRRELEVANT, *AT_ONCE)))
    wanted = {"overrides": deciding, "tuning_seed": plan.tuning_seed, "rate": plan.rate}
    if not path.exists():
        write_file(path, document(wanted))
        return
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged; remove {plan.folder} and run the command again") from error
    if differing := [key for key in wanted if found.get(key) != wanted[key]]:
        key = differing[0]
        raise ConfigurationError(
            f"{plan.folder}: contains {what} with other settings, {key} {found.get(key)}, found "
            f"{wanted[key]}; choose another folder with output=DIR, or remove {plan.folder}"
        )
