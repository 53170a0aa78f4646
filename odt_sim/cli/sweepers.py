"""Hydra's table of sweepers, with those of odt_sim: `hydra/sweeper=optuna` and `hydra/sweeper=random`."""

from collections.abc import Mapping
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins

from odt_sim.cli.optuna_sweeper import OptunaSweeper
from odt_sim.cli.random_sweeper import RandomSweeper
from odt_sim.cli.search_sweeper import SearchSweeper

SHARED: Mapping[str, Any] = {"n_trials": 20, "n_jobs": 1, "seed": 0, "params": None}
OPTUNA: Mapping[str, Any] = {"sampler": "tpe", "pruner": "none", "pruner_settings": None}


def register_sweepers() -> None:
    """Make the sweepers available to Hydra, and take the place of its own, by the name that saved sweeps have."""
    plugins = Plugins.instance()  # executes the modules of Hydra's own plugins again, so theirs is imported after it
    from odt_sim.cli.grid_sweeper import BASIC, GridSweeper

    plugins.class_name_to_class[BASIC] = GridSweeper
    _register("random", RandomSweeper, SHARED)
    _register("optuna", OptunaSweeper, {**SHARED, **OPTUNA})


def _register(name: str, sweeper: type[SearchSweeper], settings: Mapping[str, Any]) -> None:
    # Hydra takes plugins of the package hydra_plugins only, which it does not find in editable installations.
    target = f"hydra_plugins.odt_sim.{sweeper.__name__}"
    Plugins.instance().class_name_to_class[target] = sweeper
    node = {"_target_": target, **settings}
    ConfigStore.instance().store(group="hydra/sweeper", name=name, node=node, provider="odt_sim")
